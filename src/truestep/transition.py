# SPDX-License-Identifier: Apache-2.0
"""Where a node is in its life, and the step to the next state: `NodeState`, `Transition`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from truestep.reason import Reason


class NodeState(StrEnum):
    """The states of a node's life, from installation to retirement."""

    NEW = "new"
    SCREENING = "screening"
    AVAILABLE = "available"
    IN_USE = "in_use"
    RECLAIMED = "reclaimed"
    SUSPECT = "suspect"
    DRAINING = "draining"
    QUARANTINED = "quarantined"
    HELD_FOR_STUDY = "held_for_study"
    IN_REPAIR = "in_repair"
    PROBATION = "probation"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One arrow of a node's life. Which arrows are legal is for `fleet.life_cycle` to say.

    Attributes:
        before: State that the node leaves.
        after: State that it enters.
        reason: Why, as a permanent code.
        records: Ids of the records on which this rests.
    """

    before: NodeState
    after: NodeState
    reason: Reason
    records: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.before is self.after:
            raise ValueError(
                f"a transition must lead from one state to another, got {self.before!s} twice. "
                "Record nothing where nothing changes."
            )
