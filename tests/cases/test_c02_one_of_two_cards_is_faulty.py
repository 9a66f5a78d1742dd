# SPDX-License-Identifier: Apache-2.0
"""The same program on two cards: the card is at fault and not the library; next day it sleeps.

Source: https://github.com/ROCm/rocm-libraries/issues/12344, https://github.com/ahrefs/ocannl/issues/476
"""

from __future__ import annotations

import math

import pytest

from judging.trials import alone
from rehearsal import screened
from truestep.device import Device, Node
from truestep.fault import Fault, FaultKind
from truestep.judging.attribution import attribute
from truestep.judging.power import excluded_rate, interval, power_of
from truestep.judging.rules import Evidence, ExperimentKind, judge
from truestep.reason import Reason
from truestep.record import Record, RecordKind
from truestep.screening.failures import Repeatable
from truestep.screening.replay import Attempt, Conclusion, conclude
from truestep.screening.tasks import Target
from truestep.store.journal import Journal
from truestep.verdict import Outcome, Scope, merge_outcomes

BAD, GOOD = (Device(id=f"cuda:{i}", kind="cuda", model="m", serial=f"GPU-{i}") for i in (0, 1))
BAD_STARTS = alone(BAD.id, wrong=32, total=104)
GOOD_STARTS = alone(GOOD.id, total=34)
ALL_TRIED = frozenset(ExperimentKind)


def test_each_card_gets_a_rate_with_an_interval_and_the_good_one_is_never_just_healthy():
    low, high = interval(32, 104)
    assert low < 32 / 104 < high
    (power,) = power_of([GOOD_STARTS])
    assert power.num_comparisons == 34
    assert power.excluded_rate == excluded_rate(34) == pytest.approx(0.084, abs=5e-4)


def test_the_blame_goes_to_the_card_and_the_library_is_cleared():
    evidence = Evidence(
        device=BAD,
        first=(BAD_STARTS,),
        contrasts=(GOOD_STARTS,),
        has_others=True,
        tried=ALL_TRIED,
        selftest_caught=True,
    )
    verdict = judge(evidence)
    assert verdict.outcome is Outcome.FAIL
    assert (verdict.suspect.scope, verdict.suspect.name) == (Scope.DEVICE, BAD.id)
    assert verdict.suspect.scope is not Scope.SOFTWARE_OR_PLATFORM


def test_luck_explains_the_good_card_in_four_of_a_million_cases():
    assert math.isclose((1 - 32 / 104) ** 34, 3.7e-6, rel_tol=0.02)
    few = alone(GOOD.id, total=5)
    assert attribute([BAD_STARTS, few]).name == ""


def quiet_day() -> Conclusion:
    failure = Repeatable(
        test_id="matmul_exact_fp16",
        seed=1,
        level=1,
        backend="torch",
        device=BAD.id,
        unit="",
        identity=BAD.serial,
        site="matmul/fp16",
        run_id="day1",
        inputs_digest="d",
        memory_bytes=1 << 24,
    )
    attempts = [
        Attempt(target=Target(device=d), num_failed=0, num_rounds=200, is_same_input=True)
        for d in (BAD, GOOD)
    ]
    return conclude(attempts, failure, node=Node(name="n"))


def test_a_quiet_day_is_not_reproduced_and_clears_nobody():
    assert quiet_day() is Conclusion.NOT_REPRODUCED
    assert "the earlier evidence stays" in quiet_day().value


def test_a_failure_that_sleeps_when_it_is_repeated_stays_a_fail_and_asks_for_load():
    repeats = tuple(alone(BAD.id, total=1) for _ in range(10))
    evidence = Evidence(device=BAD, first=(BAD_STARTS,), repeats=repeats, tried=ALL_TRIED)
    verdict = judge(evidence)
    assert (verdict.outcome, verdict.reason) == (Outcome.FAIL, Reason.MISCOMPARE_NOT_REPEATED)
    assert not verdict.is_confirmed
    assert "came back in 0 of 10 repeats" in verdict.detail
    assert "under load" in verdict.reason.next_action


def test_the_record_of_the_first_day_outlives_a_clean_one(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    days = {
        "day1": judge(Evidence(device=BAD, first=(BAD_STARTS,), tried=ALL_TRIED)),
        "day3": judge(
            Evidence(device=BAD, first=(alone(BAD.id, total=200),), selftest_caught=True)
        ),
    }
    for name, verdict in days.items():
        journal.append(
            Record(
                id=name,
                kind=RecordKind.SCREENING,
                run_id=name,
                time_s=0.0,
                subject="matmul",
                device=BAD,
                verdict=verdict,
            )
        )
    kept = [record.verdict.outcome for record in journal.read()]
    assert kept == [Outcome.FAIL, Outcome.PASS]
    assert merge_outcomes(kept) is Outcome.FAIL


def test_with_the_comparison_off_nothing_passes():
    report = screened(is_blind=True, num_simulated=2)
    assert {r.verdict.reason for r in report.records} == {Reason.SELFTEST_MISSED}
    assert report.outcome is Outcome.UNKNOWN


def test_two_simulated_cards_of_which_one_is_faulty_are_told_apart():
    fault = Fault(kind=FaultKind.FLIP, site="matmul/fp32", rate=32 / 104, device="sim:0", seed=2)
    report = screened(faults=(fault,), num_simulated=2)
    verdicts = {r.device.id: r.verdict for r in report.records}
    assert verdicts["sim:0"].outcome is Outcome.FAIL
    assert verdicts["sim:0"].suspect.name == "sim:0"
    assert verdicts["sim:1"].outcome is Outcome.PASS
    assert verdicts["sim:1"].power[0].excluded_rate < 0.05
