# SPDX-License-Identifier: Apache-2.0
"""What follows from records: where each node stands, and which device was in which node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from truestep.reason import Owner
from truestep.record import Record, RecordKind
from truestep.store.history import tables as t
from truestep.store.history.entry import RunStatus
from truestep.store.history.rows import record_of, row_of, storable
from truestep.transition import NodeState
from truestep.verdict import Outcome, merge_outcomes

CLEAN_SLATE = (NodeState.AVAILABLE, NodeState.PROBATION)
"""What was found before a node came into one of these no longer speaks against it."""

_DERIVED = ("state", "since_s", "slate_seq", "last_pass_s", "last_screened_s", "num_open")


def new_node(
    connection: Connection, name: str, *, now_s: float, rack: str = "", power: str = ""
) -> int:
    """The key of a node that is entered under a name."""
    values = {"name": name, "enrolled_s": now_s, "rack": rack, "power": power}
    values |= {"state": NodeState.NEW.value, "since_s": now_s}
    done = connection.execute(insert(t.nodes).values(**values))
    return int(done.inserted_primary_key[0])  # type: ignore[index]


@dataclass(slots=True)
class Ledger:
    """Adds records to the tables, and what follows from them, within one transaction.

    Attributes:
        connection: The transaction.
        is_simulation: Devices are then told apart by their node, as all share one machine.
    """

    connection: Connection
    is_simulation: bool
    _seq: int = field(init=False)
    _rows: list[dict[str, Any]] = field(default_factory=list)
    _standings: dict[int, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        query = select(func.coalesce(func.max(t.records.c.seq), 0))
        self._seq = int(self.connection.execute(query).scalar_one())

    def state(self, key: int) -> NodeState:
        """Where a node is now."""
        return NodeState(self._standing(key)["state"])

    def add(self, key: int, record: Record, text: str, *, is_issued: bool) -> None:
        """Add one record and its JSON, in order. It is kept by `flush`."""
        self._seq += 1
        device = self._device(key, record)
        row = row_of(record, text, seq=self._seq, key=key, device=device, is_issued=is_issued)
        self._rows.append(row)
        self.follow(key, record, device, seq=self._seq)

    def follow(self, key: int, record: Record, device: str, *, seq: int) -> None:
        """What follows from one record."""
        _advance(self._standing(key), record, seq)
        if device:
            self._place(key, record, device)

    def flush(self) -> None:
        """Write what was added."""
        if self._rows:
            self.connection.execute(insert(t.records), self._rows)
            self._rows.clear()
        if self._standings:
            statement = update(t.nodes).where(t.nodes.c.key == bindparam("of_key"))
            values = statement.values({name: bindparam(f"to_{name}") for name in _DERIVED})
            rows = [
                {"of_key": key, **{f"to_{name}": standing[name] for name in _DERIVED}}
                for key, standing in self._standings.items()
            ]
            self.connection.execute(values, rows)
            self._standings.clear()

    def _standing(self, key: int) -> dict[str, Any]:
        if key not in self._standings:
            query = select(t.nodes).where(t.nodes.c.key == key)
            self._standings[key] = dict(self.connection.execute(query).mappings().one())
        return self._standings[key]

    def _device(self, key: int, record: Record) -> str:
        """The serial of the record's device, or a weak name that no other node's device has."""
        device = record.device
        if device is None:
            return ""
        if device.serial and not self.is_simulation:
            return device.serial
        standing = self._standing(key)
        return f"{standing['identity'] or standing['name']}/{device.serial or device.id}"

    def _place(self, key: int, record: Record, serial: str) -> None:
        p = t.placements.c
        newest = select(t.placements).where(p.serial == serial).order_by(p.number.desc()).limit(1)
        last = self.connection.execute(newest).one_or_none()
        told = {
            "model": storable(record.device.model) if record.device else "",
            "firmware": storable(record.device.firmware) if record.device else "",
        }
        if last is None or last.key != key:
            times = {"from_s": record.time_s, "to_s": record.time_s}
            values = {"serial": serial, "key": key, **told, **times}
            self.connection.execute(insert(t.placements).values(**values))
            return
        times = {
            "from_s": min(last.from_s, record.time_s),
            "to_s": max(last.to_s, record.time_s),
        }
        if (times["from_s"], times["to_s"], *told.values()) != (
            last.from_s,
            last.to_s,
            last.model,
            last.firmware,
        ):
            change = update(t.placements).where(p.number == last.number)
            self.connection.execute(change.values(**told, **times))


def note_pass(connection: Connection, run_id: str, key: int) -> None:
    """Book the pass of a run that ended, if every part of it passed."""
    r = t.records.c
    found = connection.execute(
        select(r.outcome, r.time_s).where(r.run_id == run_id, r.is_issued, r.outcome != "")
    ).all()
    if not found or merge_outcomes(Outcome(row.outcome) for row in found) is not Outcome.PASS:
        return
    time_s = max(row.time_s for row in found)
    known = func.coalesce(t.nodes.c.last_pass_s, time_s)
    later = select(t.nodes.c.key).where(t.nodes.c.key == key, known <= time_s)
    connection.execute(update(t.nodes).where(t.nodes.c.key.in_(later)).values(last_pass_s=time_s))


def rebuild(connection: Connection, *, is_simulation: bool) -> None:
    """Make anew all that follows from records and runs."""
    connection.execute(delete(t.placements))
    connection.execute(
        update(t.nodes).values(
            state=NodeState.NEW.value,
            since_s=t.nodes.c.enrolled_s,
            slate_seq=0,
            last_pass_s=None,
            last_screened_s=None,
            num_open=0,
        )
    )
    ledger = Ledger(connection, is_simulation=is_simulation)
    for seq, key, device, record in _all(connection):
        ledger.follow(key, record, device, seq=seq)
    ledger.flush()
    folded = select(t.runs.c.id, t.runs.c.key).where(t.runs.c.status == RunStatus.FOLDED.value)
    for run in connection.execute(folded).all():
        note_pass(connection, run.id, run.key)


def _all(connection: Connection) -> Iterable[tuple[int, int, str, Record]]:
    r = t.records.c
    seq = 0
    while rows := connection.execute(
        select(r.seq, r.key, r.device, r.body).where(r.seq > seq).order_by(r.seq).limit(1000)
    ).all():
        for row in rows:
            yield row.seq, row.key, row.device, record_of(row.body)
        seq = rows[-1].seq


def _advance(standing: dict[str, Any], record: Record, seq: int) -> None:
    if record.transition is not None:
        after = record.transition.after
        standing["state"], standing["since_s"] = after.value, record.time_s
        if after in CLEAN_SLATE:
            standing["slate_seq"], standing["num_open"] = seq, 0
    if record.kind is RecordKind.SCREENING:
        last = standing["last_screened_s"]
        standing["last_screened_s"] = max(last or record.time_s, record.time_s)
        is_pass = record.verdict is not None and record.verdict.outcome is Outcome.PASS
        standing["num_open"] += not is_pass
    elif record.kind is RecordKind.WATCH and record.verdict is not None:
        standing["num_open"] += record.verdict.reason.owner is Owner.HARDWARE
