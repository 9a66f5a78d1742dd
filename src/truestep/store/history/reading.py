# SPDX-License-Identifier: Apache-2.0
"""Questions to the tables of a history, each answered with nouns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, false, func, or_, select, union_all

from truestep.errors import ConfigError, RecordError
from truestep.record import Record, RecordKind
from truestep.store.history import tables as t
from truestep.store.history.entry import Entry, Placement, Refused, Run, Summary
from truestep.store.history.rows import entry_of, head_of, placement_of, record_of, run_of, state_of
from truestep.transition import NodeState
from truestep.verdict import Outcome

SHORTEST_PREFIX = 6
"""A beginning of a record's id must be at least this long."""


def entry(connection: Connection, key: int) -> Entry:
    """The node with this key."""
    row = connection.execute(select(t.nodes).where(t.nodes.c.key == key)).one_or_none()
    if row is None:
        raise RecordError(f"a node's key must be in the history, got {key}.")
    return entry_of(row)


def entries(
    connection: Connection, states: Collection[NodeState] | None, *, with_open: bool
) -> tuple[Entry, ...]:
    """All nodes by name, or those in some states, and on wish those with open findings."""
    n = t.nodes.c
    query = select(t.nodes).order_by(n.name)
    if states is not None:
        is_meant = n.state.in_([state.value for state in states])
        query = query.where(or_(is_meant, n.num_open > 0) if with_open else is_meant)
    return tuple(map(entry_of, connection.execute(query)))


def summary(connection: Connection) -> Summary:
    """The nodes, counted."""
    n = t.nodes.c
    # Functions of the database: a fleet may have more nodes than should be read to count them.
    query = select(n.state, func.count(), func.count(n.last_pass_s), func.min(n.last_pass_s))
    rows = {state_of(r[0]): r for r in connection.execute(query.group_by(n.state))}
    kept = [row for state, row in rows.items() if state is not NodeState.RETIRED]
    return Summary(
        counts={state: row[1] for state, row in rows.items()},
        num_never_passed=sum(row[1] - row[2] for row in kept),
        oldest_pass_s=min((row[3] for row in kept if row[3] is not None), default=None),
    )


def key_of_name(connection: Connection, name: str) -> int | None:
    """The key of the node with this name or alias."""
    aliases = select(t.names.c.key).where(t.names.c.alias == name)
    query = select(t.nodes.c.key).where(or_(t.nodes.c.name == name, t.nodes.c.key.in_(aliases)))
    return connection.execute(query).scalar_one_or_none()


def key_of_identity(connection: Connection, identity: str) -> int | None:
    """The key of the node with this board serial."""
    query = select(t.nodes.c.key).where(t.nodes.c.identity == identity)
    return connection.execute(query).scalar_one_or_none()


def find(connection: Connection, text: str) -> Entry:
    """The node that is called so, or whose name begins so up to a dot."""
    shown = ascii(text)[:100]
    if not text or not text.isprintable():
        raise ConfigError(f"a node must be named by printable text, got {shown}.")
    n = t.nodes.c
    aliases = select(t.names.c.key).where(t.names.c.alias == text)
    exact = or_(n.identity == text, n.name == text, n.key.in_(aliases))
    found = connection.execute(select(t.nodes).where(exact)).all()
    if not found:
        start = f"{text}."
        longer = t.names.c.alias.startswith(start, autoescape=True)
        aliases = select(t.names.c.key).where(longer)
        begins = or_(n.name.startswith(start, autoescape=True), n.key.in_(aliases))
        found = connection.execute(select(t.nodes).where(begins).order_by(n.name).limit(10)).all()
    if len(found) != 1:
        names = ", ".join(repr(row.name) for row in found)
        raise ConfigError(
            f"a node must be named without doubt, got {shown}, which is "
            f"{'none' if not found else names}. `truestep fleet status --all` "
            "names them."
        )
    return entry_of(found[0])


def placements(connection: Connection, which: ColumnElement[bool]) -> tuple[Placement, ...]:
    """Which devices were where, in order."""
    joined = t.placements.join(t.nodes, t.placements.c.key == t.nodes.c.key)
    query = select(t.placements, t.nodes.c.name).select_from(joined).where(which)
    rows = connection.execute(query.order_by(t.placements.c.number))
    return tuple(map(placement_of, rows))


def placements_of(connection: Connection, serial: str) -> tuple[Placement, ...]:
    """Where a device was, by its serial, or by the end of it behind a slash if only one has it."""
    p = t.placements.c
    exact = placements(connection, p.serial == serial)
    if exact or not serial or not serial.isprintable():
        return exact
    ends = placements(connection, p.serial.endswith(f"/{serial}", autoescape=True))
    return ends if len({place.serial for place in ends}) == 1 else ()


def recent(
    connection: Connection, keys: Collection[int] | None
) -> Iterator[tuple[Entry, tuple[Record, ...], frozenset[str]]]:
    """What a decision needs of each node, see `History.recent`."""
    nodes = select(t.nodes)
    if keys is not None:
        nodes = nodes.where(t.nodes.c.key.in_(keys))
    known = {row.key: entry_of(row) for row in connection.execute(nodes)}
    r, n = t.records.c, t.nodes.c
    columns = (r.key, r.seq, r.head, r.run_id, r.is_issued)
    is_meant = n.key.in_(keys) if keys is not None else n.key.is_not(None)
    later = and_(r.key == n.key, r.seq >= n.slate_seq, is_meant)
    before = and_(r.key == n.key, r.seq < n.slate_seq, r.is_lasting, is_meant)
    both = union_all(select(*columns).where(later), select(*columns).where(before)).subquery()
    rows = connection.execute(select(both).order_by(both.c.key, both.c.seq))
    for key, group in groupby(rows, lambda row: row.key):
        found = list(group)
        issued = frozenset(row.run_id for row in found if row.is_issued)
        yield known.pop(key), tuple(head_of(row.head) for row in found), issued
    for left in known.values():
        yield left, (), frozenset()


def records(
    connection: Connection,
    key: int,
    kinds: Collection[RecordKind] | None,
    since_s: float | None,
) -> tuple[Record, ...]:
    """The records of a node, whole, in order."""
    r = t.records.c
    query = select(r.body).where(r.key == key).order_by(r.seq)
    if kinds is not None:
        query = query.where(r.kind.in_([kind.value for kind in kinds]))
    if since_s is not None:
        query = query.where(r.time_s >= since_s)
    return tuple(record_of(row.body) for row in connection.execute(query))


def record(connection: Connection, record_id: str) -> tuple[int, Record]:
    """The one record whose id is this, or begins so."""
    r = t.records.c
    query = select(r.key, r.body)
    is_text = record_id.isprintable()
    found = connection.execute(query.where(r.id == record_id if is_text else false())).all()
    if not found and is_text and len(record_id) >= SHORTEST_PREFIX:
        begins = r.id.startswith(record_id, autoescape=True)
        found = connection.execute(query.where(begins).limit(2)).all()
    if len(found) != 1:
        raise ConfigError(
            f"a record must be named by its id or at least {SHORTEST_PREFIX} characters that begin "
            f"no other, got {ascii(record_id)[:80]} for {'several' if found else 'none'}."
        )
    return found[0].key, record_of(found[0].body)


def records_of_device(connection: Connection, serial: str) -> tuple[tuple[int, Record], ...]:
    """The records of a device with their nodes' keys, in order."""
    r = t.records.c
    query = select(r.key, r.body).where(r.device == serial).order_by(r.seq)
    return tuple((row.key, record_of(row.body)) for row in connection.execute(query))


def records_about(connection: Connection, subject: str) -> tuple[Record, ...]:
    """The records of all nodes with this subject, in order."""
    r = t.records.c
    query = select(r.body).where(r.subject == subject).order_by(r.seq)
    return tuple(record_of(row.body) for row in connection.execute(query))


def refused(connection: Connection, limit: int) -> tuple[Refused, ...]:
    """What did not come in, newest first."""
    query = select(t.refused).order_by(t.refused.c.number.desc()).limit(limit)
    rows = connection.execute(query)
    return tuple(Refused(id=row.id, source=row.source, why=row.why) for row in rows)


def tally(
    connection: Connection, subject: str, model: str, environment: str, since_s: float
) -> Mapping[Outcome, frozenset[int]]:
    """Nodes by the latest outcome of one test on one model in one environment."""
    r = t.records.c
    is_alike = (r.subject == subject, r.model == model, r.environment == environment)
    query = select(r.key, r.outcome).where(
        *is_alike, r.time_s >= since_s, r.is_issued, r.kind == RecordKind.SCREENING.value
    )
    latest = {row.key: row.outcome for row in connection.execute(query.order_by(r.seq))}
    nodes: dict[Outcome, set[int]] = {}
    for key, outcome in latest.items():
        if outcome:
            nodes.setdefault(Outcome(outcome), set()).add(key)
    return {outcome: frozenset(keys) for outcome, keys in nodes.items()}


def runs(connection: Connection, *which: ColumnElement[bool]) -> tuple[Run, ...]:
    """Issued runs, oldest first."""
    query: Any = select(t.runs).where(*which).order_by(t.runs.c.issued_s, t.runs.c.id)
    return tuple(map(run_of, connection.execute(query)))


def digest(connection: Connection, record_id: str) -> str:
    """The digest of a record; empty where there is none."""
    query = select(t.records.c.digest).where(t.records.c.id == record_id)
    return connection.execute(query).scalar_one_or_none() or ""


def last_transition(connection: Connection, key: int) -> str:
    """The id of the last transition of a node; empty where it has none."""
    r = t.records.c
    is_it = (r.key == key, r.kind == RecordKind.TRANSITION.value)
    query = select(r.id).where(*is_it).order_by(r.seq.desc()).limit(1)
    return connection.execute(query).scalar_one_or_none() or ""
