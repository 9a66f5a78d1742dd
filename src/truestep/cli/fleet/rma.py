# SPDX-License-Identifier: Apache-2.0
"""`truestep fleet rma`: what goes to the vendor with a bad device, and what the vendor found."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from pathlib import Path
from uuid import uuid4

import click

from truestep.cli.fleet.opening import LONGEST_NOTE, fleet_option, open_history
from truestep.errors import ConfigError
from truestep.fleet import reproducer
from truestep.fleet.attached import statement
from truestep.fleet.handoff import VendorOutcome, case_of, hand_off
from truestep.fleet.incident import VENDOR
from truestep.reason import Reason
from truestep.record import Artifact, Record
from truestep.report.markdown import hand_off_page
from truestep.report.printable import printable
from truestep.store.durable import make_folder, read_regular, write_atomically
from truestep.store.history import Entry, History
from truestep.store.schema import dumps, to_plain

LIMIT_BYTES = 2**26


@click.command("rma", epilog="Example: truestep fleet rma GPU-5f3a --attach dcgmi.json")
@fleet_option
@click.option("--out", type=click.Path(path_type=Path), help="Folder to make; rma-SERIAL else.")
@click.option(
    "--attach",
    "files",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="A log of the vendor's tools to add; may be repeated.",
)
@click.option(
    "--outcome",
    type=click.Choice([o.value for o in VendorOutcome]),
    help="Instead: record what the vendor found.",
)
@click.option("--note", default="", help="With --outcome: in the vendor's words.")
@click.argument("serial")
def command(
    folder: Path,
    out: Path | None,
    files: tuple[Path, ...],
    outcome: str | None,
    note: str,
    serial: str,
) -> None:
    """Make the folder that goes with the device of this SERIAL (or with a node) to its vendor.

    It holds the counts with their intervals, how nodes alike pass, the time line, the records that
    failed, attached logs, and a program that stands alone and repeats the computation.

    Of the outcomes of one device the latest counts.
    """
    with open_history(folder) as history:
        if outcome is not None:
            if out is not None or files:
                raise click.UsageError("--outcome stands alone, with --note.")
            found, _ = hand_off(history, serial)
            entry = _entry_of(history, found.serial)
            history.append(entry.key, _found(history, entry, found.serial, outcome, note))
            click.echo(f"kept: {found.serial!a} {outcome}")
            return
        target = (out or Path(f"rma-{_plain(serial)}")).absolute()
        _write(history, folder, target, files, serial)
    click.echo(
        f"made {printable(str(target))}: read rma.md, and run `python3 reproducer.py --help` there"
    )


def _write(
    history: History, folder: Path, target: Path, files: tuple[Path, ...], serial: str
) -> None:
    found, fails = hand_off(history, serial)
    is_free = not target.exists() or (target.is_dir() and not any(target.iterdir()))
    if target.is_symlink() or not is_free:
        raise ConfigError(f"{target} must not exist yet, or be empty. Name another with --out.")
    contents = {_name_of(raw, path.name): raw for path in files for raw in [_read(path)]}
    for artifact in found.attached:
        raw = _read(folder / artifact.name)
        if hashlib.sha256(raw).hexdigest() != artifact.sha256:
            raise ConfigError(
                f"{folder / artifact.name} must have the sha256 of its name, got another: it was "
                "changed. Restore it from a copy."
            )
        contents[artifact.name] = raw
    attached = [Artifact.of(name, raw) for name, raw in contents.items()]
    document = {
        "schema_version": 1,
        "hand_off": to_plain(found),
        "attached": [to_plain(a) for a in attached],
    }
    contents |= {
        "rma.json": json.dumps(document, allow_nan=False, indent=1).encode() + b"\n",
        "rma.md": hand_off_page(document).encode("utf-8", "replace"),
        "records.jsonl": b"".join(dumps(record).encode() + b"\n" for record in fails),
        "case.json": json.dumps(case_of(fails), indent=1).encode() + b"\n",
        "reproducer.py": Path(reproducer.__file__).read_bytes(),
    }
    sums = [f"{hashlib.sha256(raw).hexdigest()}  {name}\n" for name, raw in contents.items()]
    contents["SHA256SUMS"] = "".join(sums).encode()
    draft = target.with_name(f".{target.name}.{uuid4().hex[:8]}")
    try:
        for name, raw in contents.items():
            make_folder((draft / name).parent)
            write_atomically(draft / name, raw)
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _read(path: Path) -> bytes:
    return read_regular(path, limit_bytes=LIMIT_BYTES)


def _plain(name: str) -> str:
    """A name that any file system and shell takes as it is."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)


def _name_of(raw: bytes, name: str) -> str:
    return f"attached/{hashlib.sha256(raw).hexdigest()[:12]}-{_plain(name)[:80]}"


def _entry_of(history: History, serial: str) -> Entry:
    placements = history.placements(serial)
    return history.find(placements[-1].name if placements else serial)


def _found(history: History, entry: Entry, serial: str, outcome: str, note: str) -> Record:
    if len(note) > LONGEST_NOTE:
        raise ConfigError(f"a note must have at most {LONGEST_NOTE} characters, got {len(note)}.")
    return statement(
        entry,
        VENDOR,
        Reason.PERSON_DECIDED,
        f"{serial}: {outcome}" + (f": {note}" if note else ""),
        now_s=time.time(),
        is_simulated=history.is_simulation,
        readings={"serial": serial, "outcome": outcome},
    )
