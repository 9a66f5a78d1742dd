# SPDX-License-Identifier: Apache-2.0
"""`History`: all that was ever recorded of the nodes of a fleet."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing
from itertools import islice
from types import TracebackType
from typing import Self

from sqlalchemy import Connection, insert, select, update

from truestep.action import Action
from truestep.errors import ConfigError, RecordError
from truestep.record import Record, RecordKind
from truestep.store.history import reading
from truestep.store.history import tables as t
from truestep.store.history.arrival import Arrivals, refuse, replace_node
from truestep.store.history.database import Database
from truestep.store.history.derived import Ledger, new_node, note_pass, rebuild
from truestep.store.history.entry import (
    OPEN,
    Entry,
    Folded,
    Placement,
    Refused,
    Run,
    RunStatus,
    Summary,
)
from truestep.store.history.names import NameMap, NodeNames, is_sound_name
from truestep.store.history.rows import digest_of
from truestep.store.schema import dumps, from_plain, loads
from truestep.transition import NodeState
from truestep.verdict import Outcome

BATCH = 500
"""Records that are taken in within one transaction."""


class History:
    """The records of a fleet's nodes, and what follows from them.

    Made by `create` and `open`. Every method raises `RecordError` where the database cannot be
    used.

    Guarantees:
        A record is kept once, whole and unchanged; what a method writes is kept together or not at
        all, wherever the process or the database dies.
    """

    def __init__(self, database: Database, *, is_simulation: bool) -> None:
        self._database = database
        self.is_simulation = is_simulation

    @classmethod
    def create(cls, url: str, *, is_simulation: bool) -> History:
        """A new history.

        Raises:
            ConfigError: The URL is none of ours.
            RecordError: There is a history already.
        """
        with closing(Database(url)) as database:
            if database.version() and _is_made(database):
                raise RecordError(
                    f"{database.url} must hold no history yet, got one. Open it, or name another "
                    "place."
                )
            database.upgrade()
            with database.write() as connection:
                if connection.execute(select(t.fleet)).first() is None:
                    connection.execute(insert(t.fleet).values(is_simulation=is_simulation))
        return cls.open(url)

    @classmethod
    def open(cls, url: str) -> History:
        """A history that is there.

        Raises:
            ConfigError: The URL is none of ours.
            RecordError: There is none, or it is of another version.
        """
        with ExitStack() as stack:
            database = stack.enter_context(closing(Database(url)))
            database.check()
            with database.read() as connection:
                is_simulation = connection.execute(select(t.fleet.c.is_simulation)).scalar()
            if is_simulation is None:
                raise RecordError(
                    f"{database.url} must say what fleet it is of, got nothing: its making was cut "
                    "short. Make it with `truestep fleet init`, or restore it from a copy."
                )
            stack.pop_all()
        return cls(database, is_simulation=bool(is_simulation))

    @staticmethod
    def upgrade(url: str) -> None:
        """Bring a history to the version of this package.

        Raises:
            RecordError: There is none.
        """
        with closing(Database(url)) as database:
            if not database.version():
                database.check()
            database.upgrade()

    def close(self) -> None:
        """Give the database back."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def controller(self) -> AbstractContextManager[None]:
        """Be the only controller of the fleet. The lock dies with its holder.

        Raises:
            RecordError: There is another.
        """
        return self._database.controller()

    # Nodes and their names.

    def enrol(self, name: str, *, now_s: float) -> Entry:
        """The node of a scheduler's name, entered as new where it is not known."""
        if not is_sound_name(name):
            raise ConfigError(f"a node's name must be short printable text, got {name!a:.100}.")
        with self._database.write() as connection:
            key = reading.key_of_name(connection, name) or new_node(connection, name, now_s=now_s)
        return self.entry(key)

    def map_nodes(self, names: NameMap, *, now_s: float) -> tuple[str, ...]:
        """Bind names, serials, racks and power domains to nodes; enter those that are not known.

        Returns:
            What those are called now that another machine has taken the place of.

        Raises:
            RecordError: A name or serial is another node's already. Nothing is changed.
        """
        with self._database.write() as connection:
            replaced = [_map_node(connection, node, now_s) for node in names.nodes]
        return tuple(name for name in replaced if name)

    def find(self, text: str) -> Entry:
        """The node with this identity, name, alias, or unambiguous beginning of a name.

        Raises:
            ConfigError: There is none, or several; they are named.
        """
        with self._database.read() as connection:
            return reading.find(connection, text)

    def entries(
        self, *, states: Collection[NodeState] | None = None, with_open: bool = False
    ) -> tuple[Entry, ...]:
        """All nodes by name, or those in some states, and on wish those with open findings."""
        with self._database.read() as connection:
            return reading.entries(connection, states, with_open=with_open)

    def summary(self) -> Summary:
        """The nodes, counted by state and by what they passed."""
        with self._database.read() as connection:
            return reading.summary(connection)

    def entry(self, key: int) -> Entry:
        """The node with this key."""
        with self._database.read() as connection:
            return reading.entry(connection, key)

    def placements(self, serial: str) -> tuple[Placement, ...]:
        """Where a device was, in order.

        Args:
            serial: As a placement has it. Where devices have none of their own, that is the node's
                and the device's with a slash between, and the part behind it does if it is unique.
        """
        with self._database.read() as connection:
            return reading.placements_of(connection, serial)

    def devices_of(self, key: int) -> tuple[Placement, ...]:
        """Which devices were in a node, in order."""
        with self._database.read() as connection:
            return reading.placements(connection, t.placements.c.key == key)

    # Records.

    def fold(self, records: Iterable[Record], *, source: str) -> Folded:
        """Take in records from outside, each once, in any order and however often they come.

        Args:
            records: Of screenings, studies and watches; all else is refused.
            source: Where they come from, for people.
        """
        folded, rest = Folded(), iter(records)
        while batch := tuple(islice(rest, BATCH)):
            with self._database.write() as connection:
                arrivals = Arrivals(
                    connection=connection,
                    is_simulation=self.is_simulation,
                    source=source,
                    now_s=time.time(),
                )
                folded += arrivals.take(batch)
        return folded

    def append(self, key: int, *records: Record) -> None:
        """Write records of the controller, all together. One that is there is passed over.

        Raises:
            RecordError: A transition does not begin where the node is, or an id has other content.
        """
        if records:
            with self._database.write() as connection:
                self._append(connection, key, records)

    def recent(
        self, keys: Collection[int] | None = None
    ) -> Iterator[tuple[Entry, tuple[Record, ...], frozenset[str]]]:
        """What a decision needs of each node, in order of arrival: heads of records.

        They are all that came since the node last became available or came on probation, that
        transition included, and before it the withdrawals and the transitions into suspicion, out
        of the pool, and onto probation. Beside them the run ids among them that were issued.
        """
        with self._database.read() as connection:
            yield from reading.recent(connection, keys)

    def records(
        self,
        key: int,
        *,
        kinds: Collection[RecordKind] | None = None,
        since_s: float | None = None,
    ) -> tuple[Record, ...]:
        """The records of a node, whole, in order of arrival."""
        with self._database.read() as connection:
            return reading.records(connection, key, kinds, since_s)

    def record(self, record_id: str) -> tuple[int, Record]:
        """The node's key and the record of this id, or of an unambiguous beginning of one.

        Raises:
            ConfigError: There is none, or several.
        """
        with self._database.read() as connection:
            return reading.record(connection, record_id)

    def records_of_device(self, serial: str) -> tuple[tuple[int, Record], ...]:
        """The records of a device with their nodes' keys, in whatever nodes it was."""
        with self._database.read() as connection:
            return reading.records_of_device(connection, serial)

    def records_about(self, subject: str) -> tuple[Record, ...]:
        """The records of all nodes with this subject, whole, in order of arrival."""
        with self._database.read() as connection:
            return reading.records_about(connection, subject)

    def refused(self, *, limit: int = 100) -> tuple[Refused, ...]:
        """What did not come in, newest first."""
        with self._database.read() as connection:
            return reading.refused(connection, limit)

    def keep_aside(self, problems: Iterable[str], *, source: str) -> None:
        """Keep what holds no record, once, with the reason."""
        with self._database.write() as connection:
            for why in problems:
                refuse(connection, name="", source=source, why=why, body=b"", now_s=time.time())

    def tally(
        self, *, subject: str, model: str, environment: str, since_s: float
    ) -> Mapping[Outcome, frozenset[int]]:
        """Nodes by the latest outcome of a test in issued runs, on one model and environment."""
        with self._database.read() as connection:
            return reading.tally(connection, subject, model, environment, since_s)

    # Issued runs.

    def issue(self, run: Run, *records: Record) -> None:
        """Write down that a run is given out, with the records that go with it.

        Raises:
            RecordError: The node has an open run, or the id is used.
        """
        with self._database.write() as connection:
            open_runs = reading.runs(connection, t.runs.c.status.in_(OPEN), t.runs.c.key == run.key)
            if open_runs or reading.runs(connection, t.runs.c.id == run.id):
                raise RecordError(
                    f"{run.name!r} must have one open run at a time, each with an id of its own, "
                    f"got run {run.id} beside {[r.id for r in open_runs]}."
                )
            values = {name: getattr(run, name) for name in t.runs.c.keys()}  # noqa: SIM118
            connection.execute(insert(t.runs).values(**values))
            self._append(connection, run.key, records)

    def submitted(self, run_id: str, job_id: str) -> None:
        """Write down under which id the scheduler has the job of an open run."""
        with self._database.write() as connection:
            which = update(t.runs).where(t.runs.c.id == run_id, t.runs.c.status.in_(OPEN))
            connection.execute(which.values(status=RunStatus.SUBMITTED.value, job_id=job_id))

    def close_run(self, run_id: str, status: RunStatus, *records: Record) -> bool:
        """Close a run, with the records that follow from it. False where it was closed before."""
        with self._database.write() as connection:
            found = reading.runs(connection, t.runs.c.id == run_id, t.runs.c.status.in_(OPEN))
            if not found:
                return False
            which = update(t.runs).where(t.runs.c.id == run_id)
            connection.execute(which.values(status=status.value))
            self._append(connection, found[0].key, records)
            if status is RunStatus.FOLDED:
                note_pass(connection, run_id, found[0].key)
            return True

    def open_runs(self) -> tuple[Run, ...]:
        """Runs that were given out and have not ended."""
        with self._database.read() as connection:
            return reading.runs(connection, t.runs.c.status.in_(OPEN))

    def runs_of(self, key: int) -> tuple[Run, ...]:
        """All runs that were issued for a node."""
        with self._database.read() as connection:
            return reading.runs(connection, t.runs.c.key == key)

    def runs_in(self, campaign: str) -> tuple[Run, ...]:
        """All runs that a campaign has issued."""
        with self._database.read() as connection:
            return reading.runs(connection, t.runs.c.campaign == campaign)

    # Actions.

    def begin(self, key: int, action: Action, *, now_s: float) -> bool:
        """Write down that an action is being carried out. False where it is done already.

        An action is the same on the same evidence after the same transition of the node.
        """
        with self._database.write() as connection:
            name = _action_id(connection, key, action)
            done = connection.execute(select(t.actions.c.is_done).where(t.actions.c.id == name))
            is_done = done.scalar_one_or_none()
            if is_done is None:
                values = {"id": name, "key": key, "action": dumps(action)}
                values |= {"begun_s": now_s, "is_done": False}
                connection.execute(insert(t.actions).values(**values))
            return not is_done

    def finish(self, key: int, action: Action, *records: Record) -> None:
        """Write down that a begun action is done, with its records."""
        with self._database.write() as connection:
            which = update(t.actions).where(t.actions.c.id == _action_id(connection, key, action))
            connection.execute(which.values(is_done=True))
            self._append(connection, key, records)

    def begun(self) -> tuple[tuple[int, Action], ...]:
        """Actions that were begun and not finished, with their nodes' keys."""
        query = select(t.actions).where(~t.actions.c.is_done).order_by(t.actions.c.begun_s)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return tuple((row.key, from_plain(Action, loads(row.action))) for row in rows)

    def rebuild(self) -> None:
        """Make anew all that follows from records and runs."""
        with self._database.write() as connection:
            rebuild(connection, is_simulation=self.is_simulation)

    def _append(self, connection: Connection, key: int, records: Iterable[Record]) -> None:
        ledger = Ledger(connection, is_simulation=self.is_simulation)
        for record in records:
            text, known = dumps(record), reading.digest(connection, record.id)
            if known == digest_of(text):
                continue
            if known:
                raise RecordError(f"id {record.id!r} must have one content, got another.")
            step = record.transition
            if step is not None and step.before is not ledger.state(key):
                raise RecordError(
                    f"a transition must begin where the node is ({ledger.state(key)!s}), got "
                    f"{step.before!s}. Decide again on what is known now."
                )
            is_issued = bool(record.run_id) and bool(
                reading.runs(connection, t.runs.c.id == record.run_id, t.runs.c.key == key)
            )
            ledger.add(key, record, text, is_issued=is_issued)
        ledger.flush()


def _is_made(database: Database) -> bool:
    """Whether the last step of making a history was taken: what it is for is written down."""
    with database.read() as connection:
        return connection.execute(select(t.fleet)).first() is not None


def _action_id(connection: Connection, key: int, action: Action) -> str:
    last = reading.last_transition(connection, key)
    return hashlib.sha256(f"{key}|{last}|{action.key}".encode()).hexdigest()


def _map_node(connection: Connection, node: NodeNames, now_s: float) -> str:
    """Bind what the map says of one node. A serial that is known takes its node along."""
    named = reading.key_of_name(connection, node.name)
    owner = reading.key_of_identity(connection, node.serial) if node.serial else None
    if owner is not None and owner != named:
        if named is not None:
            _set_aside(connection, named)
        connection.execute(update(t.nodes).where(t.nodes.c.key == owner).values(name=node.name))
        named = owner
    if named is None:
        named = new_node(connection, node.name, now_s=now_s)
    known = reading.entry(connection, named)
    replaced = ""
    if node.serial and known.identity not in ("", node.serial):
        replaced = f"{known.name}@{known.key}"
        row = connection.execute(select(t.nodes).where(t.nodes.c.key == named)).one()
        named = replace_node(connection, row, now_s=now_s)
    values = {"rack": node.rack, "power": node.power, "name": node.name}
    if node.serial:
        values["identity"] = node.serial
    connection.execute(update(t.nodes).where(t.nodes.c.key == named).values(**values))
    for alias in node.aliases:
        other = reading.key_of_name(connection, alias)
        if other is None:
            connection.execute(insert(t.names).values(alias=alias, key=named))
        elif other != named:
            raise RecordError(
                f"{alias!r} must be a name of {node.name!r} alone, got it for "
                f"{reading.entry(connection, other).name!r} as well. Nothing was changed."
            )
    return replaced


def _set_aside(connection: Connection, key: int) -> None:
    """Take the name from a node, which goes on as `name@key`."""
    name = reading.entry(connection, key).name
    connection.execute(update(t.nodes).where(t.nodes.c.key == key).values(name=f"{name}@{key}"))
