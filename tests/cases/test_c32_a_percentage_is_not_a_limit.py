# SPDX-License-Identifier: Apache-2.0
"""The bound is the smaller of a number and a share of the nodes that can be acted on."""

from __future__ import annotations

import pytest

from truestep.action import Action, ActionKind
from truestep.fleet.policy import Rules, bound

FLAGGED = tuple(
    Action(kind=ActionKind.DRAIN, node=f"n{n}", reason="x", records=("a", "b")) for n in range(6)
)
RULES = Rules(most_out=2, share_out=0.05, breaker=10)


@pytest.mark.parametrize("num_eligible", [40, 480])
def test_two_of_six_go_whatever_the_size_of_the_fleet(num_eligible: int) -> None:
    may, held = bound(FLAGGED, out=set(), num_eligible=num_eligible, rules=RULES)
    assert [a.node for a in may] == ["n0", "n1"]
    assert [a.node for a in held] == ["n2", "n3", "n4", "n5"]
    assert {(a.kind, a.reason) for a in held} == {(ActionKind.HOLD, "bound_reached")}


def test_the_share_is_of_those_that_can_be_acted_on() -> None:
    may, _ = bound(FLAGGED, out=set(), num_eligible=20, rules=RULES)
    assert len(may) == 1
