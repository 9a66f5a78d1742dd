# SPDX-License-Identifier: Apache-2.0
"""What may come in from outside, and which node it is about."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, Row, delete, insert, or_, select, update

from truestep.record import Record, RecordKind
from truestep.store.history import tables as t
from truestep.store.history.derived import Ledger, new_node
from truestep.store.history.entry import OPEN, Folded, Refused
from truestep.store.history.names import is_sound_name
from truestep.store.history.rows import digest_of
from truestep.store.schema import dumps

CLOCK_S = 86_400.0
"""How far ahead the clock of a node may be."""

SAME_TIME_S = 3600.0
"""A device whose records in two nodes are less apart than this cannot have been moved."""

KEPT_BYTES = 64 * 2**10
"""How much is kept of what is refused."""

FROM_OUTSIDE = frozenset(
    {RecordKind.SCREENING, RecordKind.STUDY, RecordKind.WATCH, RecordKind.WITHDRAWAL}
)


class RefusedError(Exception):
    """Why a record does not come in."""


@dataclass(slots=True)
class Arrivals:
    """Takes records in, within one transaction.

    Attributes:
        connection: The transaction.
        is_simulation: Whether the history is one of a rehearsal.
        source: Where the records come from.
        now_s: Seconds since the epoch.
    """

    connection: Connection
    is_simulation: bool
    source: str
    now_s: float
    _ledger: Ledger = field(init=False)
    _replaced: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ledger = Ledger(self.connection, is_simulation=self.is_simulation)

    def take(self, records: Sequence[Record]) -> Folded:
        """Take in what may come in, and keep the rest aside."""
        known, waiting = self._known(records), self._waiting(records)
        num_known, refused, keys, num_new = 0, [], set(), 0
        for record in records:
            text = dumps(record)
            digest = digest_of(text)
            if known.get(record.id) == digest:
                num_known += 1
                continue
            try:
                self._check(record, known)
                key, is_issued = self._node_of(record)
                self._check_device(record, key)
            except RefusedError as why:
                refused.append(self._refuse(record, str(why), digest, text))
                continue
            self._ledger.add(key, record, text, is_issued=is_issued)
            if record.id in waiting:
                self.connection.execute(delete(t.refused).where(t.refused.c.id == record.id))
            known[record.id] = digest
            keys.add(key)
            num_new += 1
        self._ledger.flush()
        return Folded(
            num_new=num_new,
            num_known=num_known,
            refused=tuple(refused),
            keys=frozenset(keys),
            replaced=tuple(self._replaced),
        )

    def _known(self, records: Sequence[Record]) -> dict[str, str]:
        r = t.records.c
        query = select(r.id, r.digest).where(r.id.in_(_storable_ids(records)))
        return {row.id: row.digest for row in self.connection.execute(query)}

    def _waiting(self, records: Sequence[Record]) -> set[str]:
        """Those that were kept aside earlier, or may be now: an id that comes twice."""
        ids = _storable_ids(records)
        twice = {i for i, count in Counter(ids).items() if count > 1}
        query = select(t.refused.c.id).where(t.refused.c.id.in_(ids))
        return {row.id for row in self.connection.execute(query)} | twice

    def _refuse(self, record: Record, why: str, digest: str, text: str) -> Refused:
        return refuse(
            self.connection,
            name=record.id,
            source=self.source,
            why=why,
            body=text.encode(),
            now_s=self.now_s,
            digest=digest,
        )

    def _check(self, record: Record, known: Mapping[str, str]) -> None:
        if record.id in known:
            raise RefusedError("its id must have one content, got another; the first stays")
        if record.kind not in FROM_OUTSIDE:
            raise RefusedError(
                f"only the controller writes records of kind {record.kind!s}; leave it out"
            )
        texts = [record.id, record.subject, *([record.run_id] if record.run_id else [])]
        if record.device is not None:
            texts += [x for x in (record.device.id, record.device.serial) if x]
        if not all(map(is_sound_name, texts)) or not _is_encodable(*texts):
            raise RefusedError("id, run, subject and device must be short printable text")
        if not 0 <= record.time_s <= self.now_s + CLOCK_S:
            raise RefusedError(
                f"its time must not lie ahead, nor before 1970, got {record.time_s!r}; "
                "set the clock"
            )
        is_simulated = record.is_simulated or (record.device and record.device.is_simulated)
        if is_simulated and not self.is_simulation:
            raise RefusedError("simulated records enter no real fleet; use a simulation")

    def _node_of(self, record: Record) -> tuple[int, bool]:
        """The key of the node, and whether the run was issued for it."""
        run = self.connection.execute(
            select(t.runs).where(t.runs.c.id == record.run_id)
        ).one_or_none()
        if run is not None:
            return self._node_of_run(record, run), True
        if record.kind is RecordKind.WITHDRAWAL:
            raise RefusedError("a withdrawal must name a run that the controller issued")
        return self._node_by_name(record), False

    def _node_of_run(self, record: Record, run: Row[tuple[object, ...]]) -> int:
        if run.status not in OPEN:
            raise RefusedError(f"run {run.id} must be open, got one that is {run.status}; run anew")
        name = record.node.name if record.node else ""
        found = self._by_name(name)
        if name != run.name and (found is None or found.key != run.key):
            raise RefusedError(f"run {run.id} was issued for {run.name!r}, got {name!r}")
        serial = self._serial(record)
        entry = self._by_key(int(run.key))
        if not serial or serial == entry.identity:
            return int(run.key)
        owner = self._by_identity(serial)
        if owner is not None and owner.key != entry.key:
            raise RefusedError(
                f"serial {serial!r} must be one node, got {owner.name!r} and {run.name!r}; "
                "say in the map which it is"
            )
        if entry.identity:
            return self._replace(entry, serial)
        self._bind(entry.key, serial)
        return int(run.key)

    def _node_by_name(self, record: Record) -> int:
        name, serial = (record.node.name if record.node else ""), self._serial(record)
        named = self._by_name(name)
        owner = self._by_identity(serial) if serial else None
        if named is None:
            must = f" of {owner.name!r}" if owner is not None else ""
            raise RefusedError(f"its node must be known, got {name!r}{must}; add it to the map")
        if owner is not None and owner.key != named.key:
            raise RefusedError(
                f"serial {serial!r} is that of {owner.name!r}, got it under {name!r}; "
                "say in the map which it is"
            )
        if serial and named.identity and serial != named.identity:
            raise RefusedError(
                f"{name!r} must have serial {named.identity!r}, got {serial!r}; screen it anew"
            )
        return int(named.key)

    def _check_device(self, record: Record, key: int) -> None:
        if self.is_simulation or record.device is None or not record.device.serial:
            return
        p = t.placements.c
        other = self.connection.execute(
            select(t.nodes.c.name)
            .join(t.placements, p.key == t.nodes.c.key)
            .where(
                p.serial == record.device.serial,
                p.key != key,
                p.from_s < record.time_s + SAME_TIME_S,
                p.to_s > record.time_s - SAME_TIME_S,
            )
        ).first()
        if other is not None:
            raise RefusedError(
                f"device {record.device.serial!r} must be in one node at a time, got it in "
                f"{other.name!r} as well; look which has it"
            )

    def _serial(self, record: Record) -> str:
        """The board serial; in a simulation all nodes share one board, and the map says it."""
        return "" if self.is_simulation or record.node is None else record.node.board_serial

    def _by_key(self, key: int) -> Row[tuple[object, ...]]:
        return self.connection.execute(select(t.nodes).where(t.nodes.c.key == key)).one()

    def _by_identity(self, serial: str) -> Row[tuple[object, ...]] | None:
        query = select(t.nodes).where(t.nodes.c.identity == serial)
        return self.connection.execute(query).one_or_none()

    def _by_name(self, name: str) -> Row[tuple[object, ...]] | None:
        if not is_sound_name(name):
            return None
        aliases = select(t.names.c.key).where(t.names.c.alias == name)
        query = select(t.nodes).where(or_(t.nodes.c.name == name, t.nodes.c.key.in_(aliases)))
        return self.connection.execute(query).one_or_none()

    def _bind(self, key: int, serial: str) -> None:
        if not is_sound_name(serial) or not _is_encodable(serial):
            raise RefusedError("the serial of its board must be short printable text")
        self.connection.execute(update(t.nodes).where(t.nodes.c.key == key).values(identity=serial))

    def _replace(self, entry: Row[tuple[object, ...]], serial: str) -> int:
        """Another machine has come under the name: it gets the name, the old one its history."""
        new = replace_node(self.connection, entry, now_s=self.now_s)
        self._bind(new, serial)
        self._replaced.append((int(entry.key), new))
        return new


def replace_node(connection: Connection, entry: Row[tuple[object, ...]], *, now_s: float) -> int:
    """A new node under the name of an old one, which goes on as `name@key`. Open runs move."""
    old = int(entry.key)
    connection.execute(
        update(t.nodes).where(t.nodes.c.key == old).values(name=f"{entry.name}@{old}")
    )
    new = new_node(
        connection, str(entry.name), now_s=now_s, rack=str(entry.rack), power=str(entry.power)
    )
    connection.execute(update(t.names).where(t.names.c.key == old).values(key=new))
    connection.execute(
        update(t.runs).where(t.runs.c.key == old, t.runs.c.status.in_(OPEN)).values(key=new)
    )
    return new


def refuse(
    connection: Connection,
    *,
    name: str,
    source: str,
    why: str,
    body: bytes,
    now_s: float,
    digest: str = "",
) -> Refused:
    """Keep something aside, once, however often it comes."""
    name, source = _shown(name), _shown(source)
    unique = hashlib.sha256(f"{name}\n{why}\n{digest}".encode() + body).hexdigest()
    query = select(t.refused.c.number).where(t.refused.c.digest == unique)
    if connection.execute(query).first() is None:
        connection.execute(
            insert(t.refused).values(
                digest=unique,
                id=name,
                source=source,
                why=why,
                time_s=now_s,
                body=body[:KEPT_BYTES],
            )
        )
    return Refused(id=name, source=source, why=why)


def _shown(text: str) -> str:
    return text if text.isprintable() and _is_encodable(text) else ascii(text)[:200]


def _storable_ids(records: Sequence[Record]) -> list[str]:
    return [r.id for r in records if "\x00" not in r.id and _is_encodable(r.id)]


def _is_encodable(*texts: str) -> bool:
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return False
    return True
