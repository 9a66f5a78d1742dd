# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judging.trials import alone, sent, trial
from truestep.certificate import Certificate, Repeatability
from truestep.context import Context, Sample
from truestep.device import Device
from truestep.judging.power import excluded_rate
from truestep.judging.rules import (
    NUM_CONTRASTS,
    NUM_FRESH_REPEATS,
    NUM_REPEATS,
    Evidence,
    Experiment,
    ExperimentKind,
    judge,
)
from truestep.observation import Observation, Party, Role
from truestep.reason import Reason
from truestep.reference import ReferenceKind
from truestep.verdict import Outcome, Scope, Status, Verdict

DEVICE = Device(id="cuda:0", kind="cuda", model="m")
INTERRUPTIONS = (Reason.CRASHED, Reason.TIMED_OUT, Reason.INTERRUPTED, Reason.DRIVER_HUNG)


def evidence(*first: Observation, **rest: object) -> Evidence:
    return Evidence(**{"device": DEVICE, "first": first, "selftest_caught": True, **rest})


def carry_out(wanted: Experiment, known: Evidence, *, wrong: int, elsewhere: int) -> Evidence:
    """What a stage would add: `wrong` of the repeats fail, and `elsewhere` of the contrasts."""
    known = replace(known, tried=known.tried | {wanted.kind})
    is_contrast = wanted.kind is ExperimentKind.CONTRAST
    seen = tuple(
        alone("cuda:1" if is_contrast else "cuda:0", wrong=int(i < num), total=1, position=i % 3)
        for num in [elsewhere if is_contrast else wrong]
        for i in range(wanted.times)
    )
    if is_contrast:
        return replace(known, contrasts=seen)
    return replace(known, repeats=(*known.repeats, *seen))


def settle(known: Evidence, *, wrong: int = 10, elsewhere: int = 0) -> tuple[Verdict, int]:
    """The verdict, and how many experiments it took."""
    answer, num = judge(known), 0
    while isinstance(answer, Experiment):
        known = carry_out(answer, known, wrong=wrong, elsewhere=elsewhere)
        answer, num = judge(known), num + 1
    return answer, num


observations = st.builds(
    trial,
    st.builds(Party, device=st.sampled_from(["cuda:0", "cuda:1"]), role=st.sampled_from(Role)),
    wrong=st.integers(0, 3),
    total=st.integers(3, 5),
    kind=st.sampled_from(ReferenceKind),
    seed=st.none() | st.integers(0, 9),
)
evidences = st.builds(
    evidence,
    st.lists(observations, max_size=3).map(lambda seen: seen),
    has_others=st.booleans(),
    selftest_caught=st.booleans(),
    interruption=st.none() | st.sampled_from(INTERRUPTIONS),
).map(lambda e: replace(e, first=tuple(e.first[0])))


@given(evidences, st.integers(0, 10), st.integers(0, 10))
def test_a_verdict_comes_after_at_most_three_experiments_and_none_is_made_twice(
    known, wrong, elsewhere
):
    answer, kinds = judge(known), []
    while isinstance(answer, Experiment):
        kinds.append(answer.kind)
        assert answer.times > 0
        known = carry_out(answer, known, wrong=wrong, elsewhere=elsewhere)
        answer = judge(known)
    assert len(kinds) == len(set(kinds)) <= 3
    assert isinstance(answer, Verdict)


@given(evidences, st.integers(0, 10), st.integers(0, 10))
def test_a_pass_is_finished_clean_work_with_a_living_checker(known, wrong, elsewhere):
    verdict, _ = settle(known, wrong=wrong, elsewhere=elsewhere)
    if verdict.outcome is Outcome.PASS:
        assert known.selftest_caught
        assert known.interruption is None
        assert sum(o.num_comparisons for o in known.first) > 0
        assert not any(o.is_miscompare for o in known.first)
    if verdict.outcome is Outcome.FAIL:
        assert any(o.is_miscompare and o.reference.kind.is_enough for o in known.first)


@given(evidences, st.integers(0, 10), st.integers(0, 10))
def test_an_experiment_never_turns_a_difference_into_a_pass(known, wrong, elsewhere):
    if any(o.is_miscompare for o in known.first):
        assert settle(known, wrong=wrong, elsewhere=elsewhere)[0].outcome is not Outcome.PASS


def test_nothing_compared_is_unknown():
    for first in ([], [trial(total=0)]):
        verdict = judge(evidence(*first))
        assert (verdict.outcome, verdict.reason) == (Outcome.UNKNOWN, Reason.NO_COMPARISONS)


def test_a_checker_that_missed_a_planted_fault_passes_nothing():
    verdict = judge(evidence(trial(), selftest_caught=False))
    assert (verdict.outcome, verdict.reason) == (Outcome.UNKNOWN, Reason.SELFTEST_MISSED)


@pytest.mark.parametrize("why", INTERRUPTIONS)
def test_interrupted_work_is_unknown_however_clean(why):
    verdict = judge(evidence(trial(), interruption=why))
    assert (verdict.outcome, verdict.status, verdict.reason) == (
        Outcome.UNKNOWN,
        Status.ERROR,
        why,
    )


@pytest.mark.parametrize("why", INTERRUPTIONS)
def test_a_miscompare_before_the_interruption_stays_a_fail(why):
    verdict, _ = settle(evidence(trial(wrong=1), interruption=why), wrong=10)
    assert verdict.outcome is Outcome.FAIL


def test_clean_work_passes_with_its_power():
    verdict = judge(evidence(trial(total=300)))
    assert verdict.outcome is Outcome.PASS
    assert verdict.num_comparisons == 300
    assert [p.excluded_rate for p in verdict.power] == [excluded_rate(300)]


def test_experiments_are_a_repeat_here_then_afresh_then_elsewhere():
    known, asked = evidence(trial(wrong=1, seed=42), has_others=True), []
    while isinstance(answer := judge(known), Experiment):
        asked.append((answer.kind, answer.seed, answer.times))
        known = carry_out(answer, known, wrong=10, elsewhere=0)
    assert asked == [
        (ExperimentKind.REPEAT, 42, NUM_REPEATS),
        (ExperimentKind.FRESH, 42, NUM_FRESH_REPEATS),
        (ExperimentKind.CONTRAST, 42, NUM_CONTRASTS),
    ]


def test_a_device_without_others_is_not_contrasted():
    assert settle(evidence(trial(wrong=1)))[1] == 2


@pytest.mark.parametrize(
    ("wrong", "reason", "is_confirmed"),
    [
        (10, Reason.MISCOMPARE_REPEATED, True),
        (3, Reason.MISCOMPARE_INTERMITTENT, True),
        (0, Reason.MISCOMPARE_NOT_REPEATED, False),
    ],
)
def test_a_fail_says_whether_it_came_back(wrong, reason, is_confirmed):
    verdict, _ = settle(evidence(trial(wrong=1), has_others=True), wrong=wrong)
    assert (verdict.outcome, verdict.reason) == (Outcome.FAIL, reason)
    assert verdict.is_confirmed is is_confirmed
    assert verdict.repeats[0] <= verdict.repeats[1] == NUM_REPEATS + NUM_FRESH_REPEATS


def test_the_failing_round_counts_once_in_the_rate_of_its_device():
    # One miscompare in 100 calls: ten clean calls elsewhere are luck in 90 % of such cases.
    first = trial(wrong=1, total=100)
    verdict, _ = settle(evidence(first, has_others=True), wrong=0)
    assert "luck in 92%" in verdict.suspect.because


def test_a_fault_of_one_device_is_charged_to_it():
    verdict, _ = settle(evidence(trial(wrong=10), has_others=True))
    assert (verdict.suspect.scope, verdict.suspect.name) == (Scope.DEVICE, "cuda:0")


def test_a_fault_of_every_device_is_charged_to_none():
    verdict, _ = settle(evidence(trial(wrong=10), has_others=True), elsewhere=10)
    assert (verdict.outcome, verdict.reason) == (Outcome.UNKNOWN, Reason.ALL_ALIKE)
    assert verdict.suspect.name == ""


def test_departing_from_the_past_convicts_nobody():
    verdict, num = settle(evidence(trial(wrong=1, kind=ReferenceKind.BASELINE)))
    assert (verdict.outcome, verdict.reason, num) == (Outcome.UNKNOWN, Reason.WEAK_EVIDENCE, 0)


NEEDING = [kind for kind in ReferenceKind if kind.needs_certificate]


@pytest.mark.parametrize("kind", NEEDING)
def test_a_difference_means_nothing_before_the_set_up_repeats_its_own_bits(kind):
    def certificate(tensor: str, repeatability: Repeatability) -> Certificate:
        is_noisy = repeatability is Repeatability.NOISE_FLOOR
        return Certificate(
            tensor=tensor,
            environment_key="0" * 64,
            repeatability=repeatability,
            floor=1e-6 if is_noisy else None,
            devices=("a", "b"),
        )

    found = trial(wrong=10, kind=kind, site="matmul/bf16")
    insufficient = [
        (),
        (certificate("matmul/fp32", Repeatability.BITWISE),),
        (certificate("matmul/bf16", Repeatability.NOISE_FLOOR),),
        (certificate("matmul/bf16", Repeatability.UNJUDGED),),
    ]
    for certificates in insufficient:
        verdict, _ = settle(evidence(found, certificates=certificates))
        assert (verdict.outcome, verdict.reason) == (Outcome.UNKNOWN, Reason.NOT_CERTIFIED)
    certified = (certificate("matmul/bf16", Repeatability.BITWISE),)
    assert settle(evidence(found, certificates=certified))[0].outcome is Outcome.FAIL


@pytest.mark.parametrize("counter", ["ecc_uncorrected_count", "xid_count", "machine_check_count"])
def test_a_miscompare_that_the_hardware_reported_is_still_a_fail(counter):
    def context(before: float, after: float) -> Context:
        return Context(
            before=Sample(time_s=0, readings={counter: before}),
            after=Sample(time_s=1, readings={counter: after}),
        )

    found = evidence(trial(wrong=10), context=context(4, 5))
    verdict, _ = settle(found)
    assert (verdict.outcome, verdict.reason) == (Outcome.FAIL, Reason.HARDWARE_REPORTED)
    assert counter in verdict.detail
    quiet, _ = settle(replace(found, context=context(4, 4)))
    assert quiet.reason is Reason.MISCOMPARE_REPEATED


def test_a_rising_counter_without_a_miscompare_is_neither_fail_nor_pass():
    context = Context(
        before=Sample(time_s=0, readings={"xid_count": 0}),
        after=Sample(time_s=1, readings={"xid_count": 1}),
    )
    verdict = judge(evidence(trial(), context=context))
    assert (verdict.outcome, verdict.reason) == (Outcome.UNKNOWN, Reason.HARDWARE_REPORTED)
    assert "xid_count" in verdict.detail


def test_a_fail_names_what_was_not_varied():
    verdict, _ = settle(evidence(trial(wrong=10)))
    assert verdict.untested == ("clock", "firmware", "temperature")
    varied = [trial(wrong=10, conditions={"clock": c}) for c in ("low", "high")]
    assert settle(evidence(*varied))[0].untested == ("firmware", "temperature")


def test_a_fail_says_where_and_whether_it_varies():
    verdict, _ = settle(evidence(trial(wrong=10, position=5)))
    assert "at [5]" in verdict.detail
    assert "varies from run to run" in verdict.detail
    known = evidence(trial(wrong=10), tried=frozenset(ExperimentKind))
    same = replace(known, repeats=tuple(trial(wrong=1, total=1) for _ in range(10)))
    assert "the same every time" in judge(same).detail


def test_damage_of_the_input_clears_the_device():
    damaged = trial(
        Party(device="host", unit="shard-1", role=Role.INPUT),
        wrong=1,
        kind=ReferenceKind.INVARIANT,
        seed=None,
    )
    verdict, num = settle(evidence(damaged))
    assert (verdict.outcome, verdict.reason, num) == (Outcome.UNKNOWN, Reason.INPUT_DAMAGED, 0)
    assert verdict.suspect.scope is Scope.INPUT_DATA


def test_a_damaged_transfer_is_a_fail_of_its_link():
    first = (sent("cuda:0", "cuda:1", wrong=10), sent("cuda:0", "cuda:0"), sent("cuda:0", "cuda:2"))
    verdict = judge(evidence(*first, tried=frozenset(ExperimentKind)))
    assert (verdict.outcome, verdict.suspect.name) == (Outcome.FAIL, "cuda:0->cuda:1")
