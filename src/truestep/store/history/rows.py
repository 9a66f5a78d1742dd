# SPDX-License-Identifier: Apache-2.0
"""Records as rows, and rows as nouns."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Row

from truestep.errors import RecordError
from truestep.record import Record, RecordKind
from truestep.store.history.entry import Entry, Placement, Run, RunStatus
from truestep.store.schema import dumps, loads, record_from
from truestep.transition import NodeState

Stored = TypeVar("Stored")
Read = TypeVar("Read")

LASTING = frozenset(
    {
        NodeState.SUSPECT,
        NodeState.DRAINING,
        NodeState.QUARANTINED,
        NodeState.IN_REPAIR,
        NodeState.PROBATION,
    }
)
"""Into these states a node goes for a cause that later decisions look back at."""


def digest_of(text: str) -> str:
    """The sha256 of a record's JSON."""
    return hashlib.sha256(text.encode()).hexdigest()


def row_of(
    record: Record, text: str, *, seq: int, key: int, device: str, is_issued: bool
) -> dict[str, Any]:
    """The row that keeps a record: columns to search by, its head, and all of it as JSON."""
    head = dataclasses.replace(
        record, observations=(), context=None, environment=None, artifacts=()
    )
    return {
        "seq": seq,
        "id": record.id,
        "digest": digest_of(text),
        "key": key,
        "kind": record.kind.value,
        "run_id": record.run_id,
        "time_s": record.time_s,
        "subject": record.subject,
        "outcome": record.verdict.outcome.value if record.verdict else "",
        "device": device,
        "model": storable(record.device.model) if record.device else "",
        "environment": record.environment.key if record.environment else "",
        "is_issued": is_issued,
        "is_lasting": is_lasting(record),
        "head": dumps(head),
        "body": zlib.compress(text.encode(), 1),
    }


def is_lasting(record: Record) -> bool:
    """Whether decisions need it after the node was cleared."""
    if record.transition is not None:
        return record.transition.after in LASTING
    return record.kind is RecordKind.WITHDRAWAL


def _kept(read: Callable[[Stored], Read]) -> Callable[[Stored], Read]:
    """A reader of rows that says so where a row is damaged."""

    @functools.wraps(read)
    def reader(row: Stored) -> Read:
        try:
            return read(row)
        except RecordError:
            raise
        except (TypeError, ValueError, zlib.error) as error:
            raise RecordError(
                f"every row of the database must be as it was written, got one that is damaged: "
                f"{error!s:.200}. Restore the database from a copy; where only the nodes' rows are "
                "damaged, `truestep fleet init --rebuild` makes them anew."
            ) from error

    return reader


@_kept
def record_of(body: bytes) -> Record:
    """The record that a row keeps."""
    return record_from(loads(zlib.decompress(body)))


@_kept
def head_of(head: str) -> Record:
    """A record without observations, context, environment and artifacts."""
    return record_from(loads(head))


@_kept
def entry_of(row: Row[Any]) -> Entry:
    """A row of `nodes`."""
    return Entry(
        key=row.key,
        name=row.name,
        identity=row.identity or "",
        state=NodeState(row.state),
        since_s=float(row.since_s),
        rack=row.rack,
        power=row.power,
        last_pass_s=row.last_pass_s,
        last_screened_s=row.last_screened_s,
        num_open=row.num_open,
    )


@_kept
def run_of(row: Row[Any]) -> Run:
    """A row of `runs`."""
    names = (field.name for field in dataclasses.fields(Run))
    values = {name: getattr(row, name) for name in names}
    return Run(**{**values, "status": RunStatus(row.status)})


@_kept
def placement_of(row: Row[Any]) -> Placement:
    """A row of `placements`, with the name of its node."""
    names = (field.name for field in dataclasses.fields(Placement))
    return Placement(**{name: getattr(row, name) for name in names})


@_kept
def state_of(name: str) -> NodeState:
    """A column that holds a state."""
    return NodeState(name)


def storable(text: str) -> str:
    """Text that every database keeps: without NUL and lone surrogates."""
    return text.replace("\x00", "").encode("utf-8", "backslashreplace").decode()
