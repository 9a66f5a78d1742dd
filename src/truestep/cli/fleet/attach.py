# SPDX-License-Identifier: Apache-2.0
"""`truestep fleet attach`: keep what other tools and the kernel log say of nodes."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable
from pathlib import Path

import click

from truestep.cli.fleet.opening import fleet_option, open_history
from truestep.errors import ConfigError
from truestep.fleet.attached import KERNEL_LOG, artifact_of, error_records, tool_record
from truestep.fleet.vendor_tools import Reading, read_output, read_speeds, together
from truestep.record import Record, RecordKind
from truestep.store.durable import make_folder, read_regular, write_atomically
from truestep.store.history import Entry, History

LIMIT_BYTES = 2**26
_TOOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@click.command("attach", epilog="Example: truestep fleet attach --tool dcgmi n7=diag.json")
@fleet_option
@click.option("--tool", required=True, help=f"Its name; `{KERNEL_LOG}` for a log of the kernel.")
@click.option("--least", type=float, help="Its speeds instead of files, and what it asks for.")
@click.option("--uid", default="", help="Whose job ran while the kernel wrote the log.")
@click.argument("said", metavar="NODE=FILE...", nargs=-1, required=True)
def command(folder: Path, tool: str, least: float | None, uid: str, said: tuple[str, ...]) -> None:
    """Keep what a TOOL said of nodes: as evidence that may cause a screening, never as a verdict.

    Name all nodes of one model in one call, so that a test which fails everywhere is recognised.
    With --least, NODE=SPEED instead of NODE=FILE.
    """
    if tool == KERNEL_LOG and least is not None:
        raise click.UsageError(f"--least is for speeds, and no {KERNEL_LOG} has any.")
    if least is not None and not math.isfinite(least):
        raise click.UsageError("--least must be a finite number.")
    if not re.fullmatch(r"[A-Za-z0-9._-]{0,64}", uid):
        raise click.UsageError("--uid must be a number or a name of letters and digits.")
    if not _TOOL.fullmatch(tool):
        raise ConfigError(f"a tool must be named by letters, digits and ._-, got {tool!a:.80}.")
    with open_history(folder) as history:
        pairs = [_pair(history, text) for text in said]
        if len({entry.key for entry, _ in pairs}) < len(pairs):
            raise ConfigError(
                "each node must be named once in a call, got one twice. Attach the other file in "
                "a call of its own."
            )
        if least is not None:
            raws = {entry.name: value.encode() for entry, value in pairs}
            figures = {entry.name: _figure(value) for entry, value in pairs}
            readings = read_speeds(figures, least=least)
        else:
            raws = {e.name: read_regular(Path(v), limit_bytes=LIMIT_BYTES) for e, v in pairs}
            is_log = tool == KERNEL_LOG
            outputs = {} if is_log else {name: read_output(raw) for name, raw in raws.items()}
            readings = together(outputs)
        for entry, _ in pairs:
            raw, reading = raws[entry.name], readings.get(entry.name)
            earlier = history.records(entry.key, kinds={RecordKind.WATCH})
            known = {record.id for record in earlier}
            records = _records(history, entry, tool, uid, reading, raw, earlier)
            if not records:
                click.echo(f"{entry.name!a}: no error of a device in this log; nothing is kept")
            for record in records:
                _keep(history, folder, entry, record, raw, is_kept=record.id in known)


def _pair(history: History, text: str) -> tuple[Entry, str]:
    name, is_pair, value = text.partition("=")
    if not is_pair or not value:
        raise ConfigError(f"what a tool said must be NODE=FILE, got {text!a:.100}.")
    return history.find(name), value


def _figure(value: str) -> float:
    try:
        figure = float(value)
    except ValueError:
        figure = math.nan
    if not math.isfinite(figure):
        raise ConfigError(f"a speed must be a finite number, got {value!a:.80}.")
    return figure


def _records(
    history: History,
    entry: Entry,
    tool: str,
    uid: str,
    reading: Reading | None,
    raw: bytes,
    earlier: Iterable[Record],
) -> list[Record]:
    now_s, is_simulated = time.time(), history.is_simulation
    if reading is not None:
        return [tool_record(entry, tool, reading, raw, now_s=now_s, is_simulated=is_simulated)]
    return error_records(entry, raw, earlier, user=uid, now_s=now_s, is_simulated=is_simulated)


def _keep(
    history: History, folder: Path, entry: Entry, record: Record, raw: bytes, *, is_kept: bool
) -> None:
    verdict = record.verdict
    assert verdict is not None
    said = f"{entry.name}: {verdict.reason}: {verdict.detail}"
    if is_kept:
        click.echo(f"{ascii(said)[1:-1]} (kept already)")
        return
    file = folder.absolute() / artifact_of(raw).name
    make_folder(file.parent)
    write_atomically(file, raw)
    history.append(entry.key, record)
    click.echo(ascii(said)[1:-1])
