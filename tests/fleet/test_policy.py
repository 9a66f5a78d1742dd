# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truestep.action import REMOVING, Action, ActionKind
from truestep.fleet.policy import (
    Dossier,
    Occasion,
    Rules,
    bound,
    debt_s,
    decide,
    is_cleared,
)
from truestep.reason import Reason
from truestep.record import Record, RecordKind
from truestep.transition import NodeState, Transition
from truestep.verdict import Outcome, Scope, Status, Suspect, Verdict

NOW_S = 1_000_000.0
RULES = Rules()
IN_THE_POOL = (
    NodeState.NEW,
    NodeState.SCREENING,
    NodeState.AVAILABLE,
    NodeState.IN_USE,
    NodeState.RECLAIMED,
    NodeState.SUSPECT,
)


def verdict(
    outcome: Outcome = Outcome.FAIL,
    *,
    reason: Reason | None = None,
    scope: Scope = Scope.DEVICE,
    is_confirmed: bool = True,
) -> Verdict:
    reasons = {Outcome.PASS: Reason.PASSED, Outcome.FAIL: Reason.MISCOMPARE_REPEATED}
    return Verdict(
        outcome=outcome,
        status=Status.COMPLETE,
        reason=reason or reasons.get(outcome, Reason.CRASHED),
        num_comparisons=1,
        selftest_caught=True,
        suspect=Suspect(scope=scope, name="d") if outcome is Outcome.FAIL else None,
        is_confirmed=is_confirmed and outcome is Outcome.FAIL,
    )


def screening(run: str, found: Verdict, *, age_s: float = 60.0, number: int = 0) -> Record:
    return Record(
        id=f"{run}-{number}",
        kind=RecordKind.SCREENING,
        run_id=run,
        time_s=NOW_S - age_s,
        subject="t",
        verdict=found,
    )


def step(before: NodeState, after: NodeState, *records: str) -> Record:
    return Record(
        id=f"{before}>{after}",
        kind=RecordKind.TRANSITION,
        run_id="",
        time_s=0.0,
        subject="",
        transition=Transition(
            before=before, after=after, reason=Reason.RETEST_FAILED, records=records
        ),
    )


def dossier(
    *records: Record, state: NodeState = NodeState.SUSPECT, issued: str = "abcd"
) -> Dossier:
    return Dossier(node="n", state=state, records=records, issued=frozenset(issued))


def kind(known: Dossier, rules: Rules = RULES) -> ActionKind:
    return decide(known, rules, now_s=NOW_S).kind


verdicts = st.builds(
    verdict,
    st.sampled_from(Outcome),
    scope=st.sampled_from(Scope),
    is_confirmed=st.booleans(),
)
screenings = st.builds(
    screening,
    st.sampled_from("abxy"),
    verdicts,
    age_s=st.floats(0, 10 * 86_400),
    number=st.integers(0, 10**6),
)


@given(st.lists(screenings, max_size=8), st.sampled_from(NodeState))
def test_a_node_is_removed_only_for_several_issued_confirmed_and_contrasted_runs(
    records: list[Record], state: NodeState
) -> None:
    action = decide(dossier(*records, state=state), RULES, now_s=NOW_S)
    assert action == decide(dossier(*records, state=state), RULES, now_s=NOW_S)
    assert action.is_dry_run
    if action.kind in REMOVING:
        own = (Scope.UNIT, Scope.DEVICE, Scope.HOST_CPU, Scope.HOST_MEMORY)
        by_id = {r.id: r for r in records}
        runs = {by_id[i].run_id for i in action.records}
        assert len(runs) >= RULES.strikes or state is NodeState.PROBATION
        assert runs <= {"a", "b"}
        for i in action.records:
            found = by_id[i].verdict
            assert found is not None
            assert found.suspect is not None
            assert found.is_confirmed
            assert found.suspect.scope in own


@pytest.mark.parametrize("state", IN_THE_POOL)
def test_a_single_fail_is_retested_and_a_second_run_drains(state: NodeState) -> None:
    one = screening("a", verdict())
    assert kind(dossier(one, state=state)) is ActionKind.RETEST
    # Two records of one run are one event.
    assert kind(dossier(one, screening("a", verdict(), number=1))) is ActionKind.RETEST
    action = decide(dossier(one, screening("b", verdict()), state=state), RULES, now_s=NOW_S)
    assert (action.kind, set(action.records)) == (ActionKind.DRAIN, {"a-0", "b-0"})


def test_records_of_runs_that_nobody_issued_cause_a_retest_at_most() -> None:
    forged = [screening(run, verdict()) for run in "wxyz"]
    assert kind(dossier(*forged[:2])) is ActionKind.RETEST
    assert kind(dossier(*forged)) is ActionKind.HOLD


@pytest.mark.parametrize("scope", [Scope.SOFTWARE_OR_PLATFORM, Scope.INPUT_DATA, Scope.UNKNOWN])
def test_what_has_no_contrast_removes_nobody(scope: Scope) -> None:
    known = dossier(*(screening(run, verdict(scope=scope)) for run in "ab"))
    assert kind(known) is ActionKind.RETEST


def test_errors_of_applications_are_never_enough() -> None:
    told = verdict(Outcome.UNKNOWN, reason=Reason.HARDWARE_REPORTED)
    # One user's Xid, then that of several: a screening is asked for, and nobody is removed.
    assert kind(dossier(screening("a", told), state=NodeState.IN_USE)) is ActionKind.RETEST
    many = [screening(run, told) for run in "abcd"]
    assert kind(dossier(*many, state=NodeState.IN_USE)) is ActionKind.HOLD


def test_a_crash_of_software_speaks_against_no_node() -> None:
    crash = screening("a", verdict(Outcome.UNKNOWN, reason=Reason.CRASHED))
    assert kind(dossier(crash, state=NodeState.AVAILABLE)) is ActionKind.NONE


def test_stale_evidence_is_screened_again_and_not_acted_on() -> None:
    old = [screening(run, verdict(), age_s=RULES.fresh_s + 1) for run in "ab"]
    action = decide(dossier(*old), RULES, now_s=NOW_S)
    assert (action.kind, action.reason) == (ActionKind.RETEST, Reason.SCREENING_STALE.value)


def test_a_withdrawn_record_counts_no_more() -> None:
    back = Record(
        id="w", kind=RecordKind.WITHDRAWAL, run_id="", time_s=NOW_S, subject="", withdraws="b-0"
    )
    known = dossier(screening("a", verdict()), screening("b", verdict()), back)
    assert kind(known) is ActionKind.RETEST


def test_a_node_that_came_back_begins_anew() -> None:
    known = dossier(
        screening("a", verdict()),
        screening("b", verdict()),
        step(NodeState.PROBATION, NodeState.AVAILABLE),
        state=NodeState.AVAILABLE,
    )
    assert kind(known) is ActionKind.NONE


def test_every_quarantine_has_an_exit() -> None:
    out = step(NodeState.DRAINING, NodeState.QUARANTINED, "a-0", "b-0")
    assert kind(dossier(out, state=NodeState.QUARANTINED)) is ActionKind.REPAIR
    repairs = [step(NodeState.QUARANTINED, NodeState.IN_REPAIR, "a-0", "b-0")] * RULES.repairs
    assert kind(dossier(out, *repairs, state=NodeState.QUARANTINED)) is ActionKind.RETIRE
    by_hand = step(NodeState.DRAINING, NodeState.QUARANTINED)
    assert kind(dossier(by_hand, state=NodeState.QUARANTINED)) is ActionKind.HOLD


def test_probation_ends_with_a_pass_or_back_in_quarantine() -> None:
    begun = step(NodeState.IN_REPAIR, NodeState.PROBATION, "a-0", "b-0")
    on_probation = [begun, screening("c", verdict(Outcome.PASS))]
    assert kind(dossier(begun, state=NodeState.PROBATION)) is ActionKind.RETEST
    assert kind(dossier(*on_probation, state=NodeState.PROBATION)) is ActionKind.RELEASE
    relapse = dossier(begun, screening("c", verdict()), state=NodeState.PROBATION)
    assert kind(relapse) is ActionKind.QUARANTINE
    unissued = dossier(begun, screening("z", verdict(Outcome.PASS)), state=NodeState.PROBATION)
    assert kind(unissued) is ActionKind.RETEST


def drain(node: int) -> Action:
    return Action(
        kind=ActionKind.DRAIN, node=f"n{node}", reason="retest_failed", records=("a", f"b{node}")
    )


@given(
    st.integers(0, 12), st.integers(0, 6), st.integers(0, 2000), st.integers(0, 20), st.floats(0, 1)
)
def test_never_more_nodes_are_out_than_the_smaller_bound(
    num_wanted: int, num_out: int, num_eligible: int, most: int, share: float
) -> None:
    rules = Rules(most_out=most, share_out=share, breaker=6)
    other = Action(kind=ActionKind.RETEST, node="m", reason="screening_due")
    wanted = [other, *map(drain, range(num_wanted))]
    out = {f"out{number}" for number in range(num_out)}
    may, held = bound(wanted, out=out, num_eligible=num_eligible, rules=rules)
    removed = [a for a in may if a.kind in REMOVING]
    assert other in may
    assert {a.node for a in may} | {a.node for a in held} == {a.node for a in wanted}
    assert len(may) + len(held) == len(wanted)
    if removed:
        assert num_out + len(removed) <= min(most, math.floor(share * num_eligible))
        assert num_wanted <= rules.breaker
    assert all(a.kind is ActionKind.HOLD and a.reason == "bound_reached" for a in held)


@pytest.mark.parametrize("num_nodes", [240, 480])
def test_a_percentage_is_not_a_limit(num_nodes: int) -> None:
    # 240 nodes, 40 of them eligible, limits of 5 % and 2 nodes, 6 flagged; then the fleet grows.
    rules = Rules(most_out=2, share_out=0.05, breaker=10)
    may, held = bound(list(map(drain, range(6))), out=(), num_eligible=num_nodes // 6, rules=rules)
    assert (len(may), len(held)) == (2, 4)


def test_the_breaker_holds_everybody() -> None:
    may, held = bound(list(map(drain, range(5))), out=(), num_eligible=1000, rules=RULES)
    assert (may, len(held)) == ((), 5)


def test_what_is_done_to_a_node_that_is_out_needs_no_room() -> None:
    wanted = [drain(1), drain(2)]
    may, held = bound(wanted, out={"n1", "m"}, num_eligible=40, rules=RULES)
    assert [a.node for a in may] == ["n1"]
    assert [a.node for a in held] == ["n2"]


def test_debt_grows_with_age_and_doubt() -> None:
    assert debt_s(dossier(), now_s=NOW_S) == math.inf
    passed = replace(dossier(), last_pass_s=NOW_S - 100)
    assert debt_s(passed, now_s=NOW_S) == 100
    doubtful = replace(passed, records=(screening("b", verdict()),))
    assert debt_s(doubtful, now_s=NOW_S) == 200


UNKNOWN_SCOPE = verdict(scope=Scope.UNKNOWN)


def test_sound_nodes_give_the_contrast_that_a_node_alone_cannot() -> None:
    known = dossier(screening("a", UNKNOWN_SCOPE), screening("b", UNKNOWN_SCOPE))
    assert kind(known) is ActionKind.RETEST
    assert kind(replace(known, contrasted=frozenset({"a-0"}))) is ActionKind.RETEST
    assert kind(replace(known, contrasted=frozenset({"a-0", "b-0"}))) is ActionKind.DRAIN


def test_what_most_nodes_fail_alike_is_no_nodes_fault() -> None:
    known = dossier(screening("a", verdict()), screening("b", verdict()))
    assert kind(replace(known, alike=frozenset({"a-0", "b-0"}))) is ActionKind.RETEST


def test_a_suspect_is_cleared_by_several_passes_in_a_row_and_no_other() -> None:
    passed = verdict(Outcome.PASS)
    assert is_cleared(dossier(screening("a", passed)), RULES)
    assert not is_cleared(dossier(), RULES)
    once = dossier(screening("a", verdict()), screening("b", passed))
    assert not is_cleared(once, RULES)
    assert kind(once) is ActionKind.RETEST
    assert is_cleared(replace(once, records=(*once.records, screening("c", passed))), RULES)
    assert not is_cleared(replace(once, records=(*once.records, screening("z", passed))), RULES)


def test_a_run_passes_only_as_a_whole() -> None:
    begun = step(NodeState.IN_REPAIR, NodeState.PROBATION, "a-0", "b-0")
    half = [
        screening("c", verdict(Outcome.PASS)),
        screening("c", verdict(Outcome.UNKNOWN, reason=Reason.CRASHED), number=1),
    ]
    known = dossier(begun, *half, state=NodeState.PROBATION)
    assert kind(known) is ActionKind.RETEST
    assert not is_cleared(known, RULES)


def test_a_second_suspicion_after_a_first_that_was_cleared_drains() -> None:
    known = dossier(
        screening("a", verdict()),
        step(NodeState.SCREENING, NodeState.SUSPECT, "a-0"),
        step(NodeState.SCREENING, NodeState.AVAILABLE),
        screening("b", verdict()),
    )
    action = decide(known, RULES, now_s=NOW_S)
    assert (action.kind, set(action.records)) == (ActionKind.DRAIN, {"a-0", "b-0"})
    repaired = (step(NodeState.IN_REPAIR, NodeState.PROBATION), screening("b", verdict()))
    known = replace(known, records=(*known.records[:3], *repaired))
    assert kind(known) is ActionKind.RETEST


def test_runs_without_a_result_are_handed_to_a_person_who_starts_the_count_anew() -> None:
    crashes = [screening(run, verdict(Outcome.UNKNOWN, reason=Reason.CRASHED)) for run in "abcd"]
    action = decide(dossier(*crashes), RULES, now_s=NOW_S)
    assert (action.kind, action.reason) == (ActionKind.HOLD, Reason.CRASHED.value)
    looked = replace(
        step(NodeState.SUSPECT, NodeState.SCREENING),
        time_s=NOW_S,
        transition=Transition(
            before=NodeState.SUSPECT, after=NodeState.SCREENING, reason=Reason.PERSON_DECIDED
        ),
    )
    assert kind(dossier(*crashes, looked)) is ActionKind.RETEST


def test_what_a_person_holds_for_study_is_left_alone() -> None:
    out = step(NodeState.DRAINING, NodeState.QUARANTINED, "a-0", "b-0")
    assert kind(dossier(out, state=NodeState.HELD_FOR_STUDY)) is ActionKind.NONE


def test_levels_follow_the_occasion() -> None:
    assert {o.value: o.level for o in Occasion} == {
        "install": 4,
        "repair": 4,
        "reclaim": 3,
        "idle": 2,
    }


def test_one_strike_is_refused_as_a_rule() -> None:
    with pytest.raises(ValueError, match="removes nobody"):
        Rules(strikes=1)
