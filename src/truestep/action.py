# SPDX-License-Identifier: Apache-2.0
"""What is done about it: `Action` for a node, `StepDecision` for a training step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class ActionKind(StrEnum):
    """What can be done to a node."""

    NONE = "none"
    RETEST = "retest"
    HOLD = "hold"
    DRAIN = "drain"
    QUARANTINE = "quarantine"
    REPAIR = "repair"
    RELEASE = "release"
    RETIRE = "retire"


REMOVING = frozenset(
    {ActionKind.DRAIN, ActionKind.QUARANTINE, ActionKind.REPAIR, ActionKind.RETIRE}
)
"""Kinds that take a node out of the pool; each needs more than a single event."""


class StepDecision(StrEnum):
    """What is done with a training step."""

    COMMIT = "commit"
    RECOMPUTE = "recompute"
    DROP = "drop"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What is to be done to one node, and the records it rests on.

    Attributes:
        kind: What to do.
        node: Identity of the node.
        reason: A reason code.
        records: Ids of the records it rests on; at least two where a node is taken out, so that
            a single event never removes one.
        is_dry_run: Say what would be done and do nothing. The default.
        owner: Who set the mark. Only marks of this owner are cleared again.
    """

    kind: ActionKind
    node: str
    reason: str
    records: tuple[str, ...] = ()
    is_dry_run: bool = True
    owner: str = "truestep"

    def __post_init__(self) -> None:
        if self.kind in REMOVING and len(set(self.records)) < 2:
            raise ValueError(
                f"{self.kind!s} must rest on at least two records, got {self.records!r}. "
                "Retest in a fresh process first."
            )

    @property
    def key(self) -> str:
        """Equal for the same action on the same evidence, so that doing it twice is seen."""
        return "|".join((self.kind, self.node, self.owner, *sorted(set(self.records))))


def bound_of_nodes_out(*, num_eligible: int, most: int, share: float) -> int:
    """How many nodes may be out at a time: the smaller of a number and a share of the eligible.

    Args:
        num_eligible: Nodes on which this tool can act at all.
        most: Absolute number that the bound never exceeds, however the fleet grows.
        share: Share of the eligible nodes, in [0, 1].
    """
    if num_eligible < 0 or most < 0 or not 0.0 <= share <= 1.0:
        raise ValueError(
            "num_eligible and most must not be negative and share must lie in [0, 1], got "
            f"{num_eligible!r}, {most!r} and {share!r}."
        )
    return min(most, math.floor(share * num_eligible))
