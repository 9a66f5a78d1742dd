# SPDX-License-Identifier: Apache-2.0
"""The states of a node and the arrows between them; any state can be rebuilt from records alone.

new -> screening -> available -> in use -> reclaimed -> screening
screening -> suspect -> draining -> quarantined -> held for study | in repair
in repair -> probation -> available | retired

A screening that never started leads back to where it came from.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import uuid4

from truestep.device import Node
from truestep.errors import RecordError
from truestep.reason import Reason
from truestep.record import Record, RecordKind
from truestep.store.history import Entry
from truestep.transition import NodeState, Transition

S = NodeState

ARROWS: dict[NodeState, frozenset[NodeState]] = {
    S.NEW: frozenset({S.SCREENING, S.RETIRED}),
    S.SCREENING: frozenset({S.AVAILABLE, S.SUSPECT, S.NEW, S.RECLAIMED}),
    S.AVAILABLE: frozenset({S.IN_USE, S.SCREENING, S.SUSPECT, S.RETIRED}),
    S.IN_USE: frozenset({S.RECLAIMED, S.SUSPECT}),
    S.RECLAIMED: frozenset({S.SCREENING, S.IN_USE}),
    S.SUSPECT: frozenset({S.SCREENING, S.DRAINING}),
    S.DRAINING: frozenset({S.QUARANTINED}),
    S.QUARANTINED: frozenset({S.HELD_FOR_STUDY, S.IN_REPAIR, S.RETIRED}),
    S.HELD_FOR_STUDY: frozenset({S.QUARANTINED, S.IN_REPAIR}),
    S.IN_REPAIR: frozenset({S.PROBATION, S.RETIRED}),
    S.PROBATION: frozenset({S.AVAILABLE, S.QUARANTINED, S.RETIRED}),
    S.RETIRED: frozenset(),
}
"""From each state those that may follow. Every state but the last has an exit."""

OUT_OF_THE_POOL = frozenset(
    {S.DRAINING, S.QUARANTINED, S.HELD_FOR_STUDY, S.IN_REPAIR, S.PROBATION, S.RETIRED}
)
"""States in which a node takes no jobs. All but the last count against the bound."""


def step(
    entry: Entry,
    after: NodeState,
    reason: Reason,
    *,
    now_s: float,
    records: Iterable[str] = (),
    is_simulated: bool = False,
) -> Record:
    """The record of one arrow, from where the node is.

    Raises:
        RecordError: There is no such arrow.
    """
    transition = Transition(
        before=entry.state, after=after, reason=reason, records=tuple(dict.fromkeys(records))
    )
    check(transition)
    return Record(
        id=uuid4().hex,
        kind=RecordKind.TRANSITION,
        run_id="",
        time_s=now_s,
        subject=after.value,
        node=Node(name=entry.name, board_serial=entry.identity),
        transition=transition,
        is_simulated=is_simulated,
    )


def check(transition: Transition) -> None:
    """Refuse an arrow that there is not.

    Raises:
        RecordError: The state after may not follow the state before.
    """
    allowed = ARROWS[transition.before]
    if transition.after not in allowed:
        raise RecordError(
            f"{transition.before!s} must be followed by {' or '.join(sorted(allowed)) or 'nothing'}"
            f", got {transition.after!s}. Take the steps between, each with its reason."
        )


def state_of(records: Iterable[Record]) -> NodeState:
    """The state of a node, from its records in order; `new` where none is a transition.

    Withdrawn transitions still count: a node was where it was.

    Raises:
        RecordError: A transition does not begin where the one before it ended, or is illegal.
    """
    state = NodeState.NEW
    for record in records:
        if record.transition is None:
            continue
        if record.transition.before is not state:
            raise RecordError(
                f"record {record.id} must begin in {state!s}, got "
                f"{record.transition.before!s}. A transition is missing, or out of order."
            )
        check(record.transition)
        state = record.transition.after
    return state
