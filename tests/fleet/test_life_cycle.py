# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truestep.errors import RecordError
from truestep.fleet.life_cycle import ARROWS, OUT_OF_THE_POOL, check, state_of
from truestep.reason import Reason
from truestep.record import Record, RecordKind
from truestep.transition import NodeState, Transition


def arrow(before: NodeState, after: NodeState) -> Transition:
    return Transition(before=before, after=after, reason=Reason.PERSON_DECIDED)


def record(number: int, transition: Transition | None = None) -> Record:
    kind = RecordKind.SCREENING if transition is None else RecordKind.TRANSITION
    return Record(
        id=f"r{number}", kind=kind, run_id="run", time_s=0.0, subject="", transition=transition
    )


@st.composite
def lives(draw: st.DrawFn) -> list[NodeState]:
    """Legal walks from `new`."""
    path = [NodeState.NEW]
    for _ in range(draw(st.integers(0, 20))):
        following = sorted(ARROWS[path[-1]])
        if not following:
            break
        path.append(draw(st.sampled_from(following)))
    return path


@given(lives())
def test_a_state_is_rebuilt_from_records_alone(path: list[NodeState]) -> None:
    steps = [arrow(a, b) for a, b in itertools.pairwise(path)]
    # Other records between the transitions change nothing.
    records = [record(0)] + [r for i, s in enumerate(steps) for r in (record(i, s), record(i))]
    assert state_of(records) is path[-1]


@given(st.sampled_from(NodeState), st.sampled_from(NodeState))
def test_an_arrow_that_there_is_not_is_refused(before: NodeState, after: NodeState) -> None:
    if before is after:
        with pytest.raises(ValueError, match="from one state to another"):
            arrow(before, after)
    elif after in ARROWS[before]:
        check(arrow(before, after))
    else:
        with pytest.raises(RecordError, match=f"got {after}"):
            check(arrow(before, after))


@given(lives().filter(lambda path: len(path) > 2), st.data())
def test_a_missing_transition_is_refused(path: list[NodeState], data: st.DataObject) -> None:
    records = [record(i, arrow(a, b)) for i, (a, b) in enumerate(itertools.pairwise(path))]
    missing = data.draw(st.integers(0, len(records) - 2))
    del records[missing]
    with pytest.raises(RecordError, match="out of order"):
        state_of(records)


def test_every_state_but_retirement_has_an_exit_and_can_be_reached() -> None:
    assert set(ARROWS) == set(NodeState)
    assert {s for s, following in ARROWS.items() if not following} == {NodeState.RETIRED}
    reached = {NodeState.NEW}
    while True:
        more = reached.union(*(ARROWS[s] for s in reached))
        if more == reached:
            break
        reached = more
    assert reached == set(NodeState)


def test_nothing_comes_back_from_quarantine_without_probation() -> None:
    back = {s for s in OUT_OF_THE_POOL if ARROWS[s] - OUT_OF_THE_POOL}
    assert back == {NodeState.PROBATION}


def test_only_a_transition_record_holds_a_transition() -> None:
    with pytest.raises(ValueError, match="transition"):
        Record(id="r", kind=RecordKind.TRANSITION, run_id="", time_s=0.0, subject="")
    with pytest.raises(ValueError, match="transition"):
        Record(
            id="r",
            kind=RecordKind.SCREENING,
            run_id="",
            time_s=0.0,
            subject="",
            transition=arrow(NodeState.NEW, NodeState.SCREENING),
        )
