# SPDX-License-Identifier: Apache-2.0
"""The states of a node and the arrows between them; any state can be rebuilt from records alone.

new -> screening -> available -> in use -> reclaimed -> screening
screening -> suspect -> draining -> quarantined -> held for study | in repair
in repair -> probation -> available | retired
"""

from __future__ import annotations

from collections.abc import Iterable

from truestep.errors import RecordError
from truestep.record import Record
from truestep.transition import NodeState, Transition

S = NodeState

ARROWS: dict[NodeState, frozenset[NodeState]] = {
    S.NEW: frozenset({S.SCREENING, S.RETIRED}),
    S.SCREENING: frozenset({S.AVAILABLE, S.SUSPECT}),
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
