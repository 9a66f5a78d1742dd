# SPDX-License-Identifier: Apache-2.0
"""Watch records of what others say of a node. They may cause a screening, and nothing more."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from uuid import uuid4

from truestep.backends.kernel_log import parse_dmesg
from truestep.context import Context, Sample
from truestep.device import Node
from truestep.fleet.application_errors import reason_of, subject_of
from truestep.fleet.vendor_tools import PREFIX, Reading
from truestep.reason import Reason
from truestep.record import Artifact, Record, RecordKind
from truestep.store.history.entry import Entry
from truestep.verdict import Outcome, Status, Verdict

FOLDER = "attached"
KERNEL_LOG = "kernel-log"


def statement(
    entry: Entry,
    subject: str,
    reason: Reason,
    detail: str,
    *,
    now_s: float,
    is_simulated: bool,
    record_id: str = "",
    readings: Mapping[str, float | str] | None = None,
    artifacts: tuple[Artifact, ...] = (),
) -> Record:
    """What somebody says of a node, as a watch record; it convicts nobody.

    Args:
        entry: The node.
        subject: What it is about.
        reason: What it means.
        detail: In which words it was said.
        now_s: Time of the record.
        is_simulated: Whether it comes from a rehearsal.
        record_id: Its id; random where none is given.
        readings: What a program will ask of it.
        artifacts: Files beside it.
    """
    sample = None if readings is None else Sample(time_s=now_s, readings=readings)
    return Record(
        id=record_id or uuid4().hex,
        kind=RecordKind.WATCH,
        run_id="",
        time_s=now_s,
        subject=subject,
        node=Node(name=entry.name, board_serial=entry.identity),
        context=None if sample is None else Context(after=sample),
        verdict=Verdict(
            outcome=Outcome.UNKNOWN, status=Status.COMPLETE, reason=reason, detail=detail
        ),
        artifacts=artifacts,
        is_simulated=is_simulated,
    )


def tool_record(
    entry: Entry, tool: str, reading: Reading, raw: bytes, *, now_s: float, is_simulated: bool
) -> Record:
    """That a tool said this of a node. The same output is the same record."""
    devices = f"devices {', '.join(reading.devices)}: " if reading.devices else ""
    return statement(
        entry,
        f"{PREFIX}{tool}",
        reading.reason,
        f"{tool} says {reading.claim}: {devices}{reading.detail}",
        now_s=now_s,
        is_simulated=is_simulated,
        record_id=_id(entry.name, tool, raw),
        artifacts=(artifact_of(raw),),
    )


def error_records(
    entry: Entry,
    raw: bytes,
    earlier: Iterable[Record],
    *,
    user: str,
    now_s: float,
    is_simulated: bool,
) -> list[Record]:
    """One record for each different error of each device in a kernel log.

    Args:
        entry: The node.
        raw: The log.
        earlier: Watch records of the node.
        user: Whose job ran meanwhile; empty where that is not known.
        now_s: Time of the records.
        is_simulated: Whether they come from a rehearsal.
    """
    known: dict[str, set[str]] = {}
    for record in earlier:
        after = record.context.after if record.context else None
        if after is not None:
            known.setdefault(record.subject, set()).add(str(after.readings.get("user", "")))
    found = {}
    for error in parse_dmesg(raw):
        subject = subject_of(error.pci, error.xid)
        found[subject] = statement(
            entry,
            subject,
            reason_of([user], known=known.get(subject, ())),
            f"Xid {error.xid} on {error.pci}",
            now_s=now_s,
            is_simulated=is_simulated,
            record_id=_id(entry.name, subject, user, raw),
            readings={"user": user},
            artifacts=(artifact_of(raw),),
        )
    return list(found.values())


def artifact_of(raw: bytes) -> Artifact:
    """A file of the fleet's folder, named by its content."""
    return Artifact.of(f"{FOLDER}/{hashlib.sha256(raw).hexdigest()}", raw)


def _id(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        piece = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(len(piece).to_bytes(8, "little") + piece)
    return f"said-{digest.hexdigest()[:32]}"
