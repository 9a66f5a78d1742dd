# SPDX-License-Identifier: Apache-2.0
"""Tables of a fleet for people, at most 100 columns wide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from rich.table import Table

from truestep.record import Record
from truestep.report.tables import WIDTH, outcome_text
from truestep.report.text import shown
from truestep.store.history.entry import Placement

_MOST_DETAIL = 300


def when(time_s: float | None) -> str:
    """A time in UTC, to the second; `never` for none, and seconds where no date can be shown."""
    if time_s is None:
        return "never"
    try:
        return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{time_s:g} s"


def history_table(records: Iterable[tuple[str, Record]], *, title: str) -> Table:
    """One row a record, in order, with the name of its node."""
    table = _table(title, ("time (UTC)", "node", "what", "outcome", "reason and detail", "id"))
    for node, record in records:
        table.add_row(
            when(record.time_s),
            shown(node),
            shown(what(record)),
            outcome_text(record.verdict.outcome) if record.verdict else "",
            shown(why(record)[:_MOST_DETAIL]),
            shown(record.id[:8]),
        )
    return table


def placements_table(placements: Sequence[Placement], *, title: str) -> Table:
    """One row for each time that a device was in a node."""
    table = _table(title, ("device", "model", "firmware", "node", "from (UTC)", "to (UTC)"))
    for p in placements:
        cells = (p.serial, p.model, p.firmware, p.name)
        table.add_row(*map(shown, cells), when(p.from_s), when(p.to_s))
    return table


def what(record: Record) -> str:
    """What a record tells of, in a few words."""
    if record.transition is not None:
        return f"{record.transition.before} -> {record.transition.after}"
    if record.action is not None:
        return f"action {record.action.kind}"
    return f"{record.subject} on {record.device.id}" if record.device else record.subject


def why(record: Record) -> str:
    """The reason of a record, and the detail."""
    if record.transition is not None:
        return str(record.transition.reason)
    if record.action is not None:
        return record.action.reason
    if record.verdict is None:
        return ""
    return ": ".join(t for t in (record.verdict.reason.value, record.verdict.detail) if t)


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", width=WIDTH)
    for name in columns:
        table.add_column(name, overflow="fold")
    return table
