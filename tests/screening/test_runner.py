# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from rehearsal import TEST, Onlooker, runner, screened
from truestep.backends.device_lock import DeviceLock
from truestep.cli.exit_codes import ExitStyle, exit_code
from truestep.errors import ConfigError
from truestep.fault import Fault, FaultKind
from truestep.reason import Reason
from truestep.screening.request import Report
from truestep.verdict import Outcome, Scope, Status


def reasons(report: Report) -> list[Reason]:
    return [r.verdict.reason for r in report.records]


def code(report: Report, style: ExitStyle = ExitStyle.STANDARD) -> int:
    return exit_code(report.outcome, report.records, style)


@pytest.fixture(scope="module")
def sound() -> Report:
    return screened(tests=("exercise_sound",), num_simulated=2)


@pytest.fixture(scope="module")
def defect() -> Report:
    fault = Fault(kind=FaultKind.FLIP, site="add", rate=0.5, device="sim:1", seed=3)
    return screened(tests=("exercise_sound",), num_simulated=3, faults=(fault,), budget_s=0.5)


def test_sound_devices_pass_with_their_power_and_their_marks(sound):
    assert reasons(sound) == [Reason.PASSED, Reason.PASSED]
    assert all(r.verdict.power and r.is_simulated and r.environment for r in sound.records)
    assert (code(sound), code(sound, ExitStyle.SLURM), code(sound, ExitStyle.NAGIOS)) == (0, 0, 0)


def test_a_defect_is_confirmed_and_charged_to_its_device(defect):
    verdicts = {r.device.id: r.verdict for r in defect.records}
    bad = verdicts["sim:1"]
    assert (bad.outcome, bad.is_confirmed) == (Outcome.FAIL, True)
    assert (bad.suspect.scope, bad.suspect.name) == (Scope.HOST_CPU, "sim:1") or (
        bad.suspect.scope,
        bad.suspect.name,
    ) == (Scope.DEVICE, "sim:1")
    assert bad.repeats[1] == 10
    assert {verdicts["sim:0"].outcome, verdicts["sim:2"].outcome} == {Outcome.PASS}
    assert (code(defect), code(defect, ExitStyle.SLURM), code(defect, ExitStyle.NAGIOS)) == (
        1,
        1,
        2,
    )


def test_a_fault_of_all_devices_blames_none_and_drains_no_node():
    fault = Fault(kind=FaultKind.STUCK, site="add", bit=40, index=3)
    report = screened(tests=("exercise_sound",), num_simulated=3, faults=(fault,))
    assert set(reasons(report)) == {Reason.ALL_ALIKE}
    assert code(report) == 2
    assert code(report, ExitStyle.SLURM) == 0


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("exercise_exit", Reason.CRASHED),
        ("exercise_segfault", Reason.CRASHED),
        ("exercise_raise", Reason.CRASHED),
        ("exercise_out_of_memory", Reason.OUT_OF_MEMORY),
        ("exercise_silent", Reason.NO_COMPARISONS),
        ("exercise_impossible", Reason.MISSING_CAPABILITY),
    ],
)
def test_what_was_not_judged_is_unknown_and_the_next_test_still_runs(name, reason):
    report = screened(tests=(name, TEST), num_simulated=1)
    by_test = {r.subject: r.verdict for r in report.records}
    assert (by_test[name].outcome, by_test[name].reason) == (Outcome.UNKNOWN, reason)
    assert by_test[TEST].outcome is Outcome.PASS
    assert (code(report), code(report, ExitStyle.SLURM), code(report, ExitStyle.NAGIOS)) == (
        2,
        0,
        3,
    )


def test_a_defect_beside_an_unknown_is_a_defect():
    report = screened(tests=("exercise_wrong", "exercise_exit"), num_simulated=1)
    assert {r.verdict.outcome for r in report.records} == {Outcome.FAIL, Outcome.UNKNOWN}
    assert code(report) == 1


def test_a_miscompare_before_a_crash_is_a_fail_that_tells_of_both():
    report = screened(tests=("exercise_wrong_then_exit",), num_simulated=1)
    (record,) = report.records
    assert record.verdict.outcome is Outcome.FAIL
    assert record.verdict.is_confirmed
    assert "then the test ended early: crashed" in record.verdict.detail


def test_a_test_that_a_device_lacks_is_skipped_when_named_and_listed_when_not():
    named = screened(tests=("matmul_exact_bf16",), num_simulated=1)
    assert named.records[0].verdict.status is Status.SKIPPED
    assert code(named) == 2


def test_no_device_at_all_is_unknown():
    # More simulated devices than none cannot be asked for, so nothing is granted instead.
    with pytest.raises(ConfigError, match=r"got gpu:9. Here are sim:0"):
        screened(devices=("gpu:9",), num_simulated=1)
    report = Report(run_id="r", node=None, request=None, found=(), records=())
    assert report.outcome is Outcome.UNKNOWN


def test_only_the_devices_that_were_asked_for_are_screened():
    report = screened(tests=("exercise_sound",), devices=("sim:1",), num_simulated=3)
    assert [r.device.id for r in report.records] == ["sim:1"]


def test_of_two_screenings_at_once_one_is_told_that_the_device_is_locked():
    first = screened(tests=("exercise_sound",), num_simulated=1)
    lock = DeviceLock(first.records[0].device.serial)
    assert lock.acquire()
    try:
        locked = screened(tests=("exercise_sound",), num_simulated=2)
    finally:
        lock.release()
    assert [(r.device.id, r.verdict.reason) for r in locked.records] == [
        ("sim:0", Reason.LOCKED),
        ("sim:1", Reason.PASSED),
    ]
    assert "--test" not in locked.records[0].replay
    assert code(locked) == 2
    after = screened(tests=("exercise_sound",), num_simulated=1)
    assert reasons(after) == [Reason.PASSED]


def test_a_stopped_screening_keeps_what_was_finished_and_tells_what_was_not():
    onlooker = Onlooker()

    def stop_at_the_second(test_id: str) -> None:
        onlooker.stops = test_id == "exercise_slow"

    onlooker.on_start = stop_at_the_second
    kept = []
    tests = (TEST, "exercise_slow", "exercise_sound")
    report = runner(onlooker, tests=tests, num_simulated=1, budget_s=6, keep=kept.append).run()
    by_test = {r.subject: r.verdict for r in report.records}
    assert by_test["exercise_slow"].reason is Reason.INTERRUPTED
    assert by_test["exercise_slow"].num_comparisons > 0
    assert report.is_interrupted
    assert code(report) == 2
    assert kept == list(report.records)


def test_a_record_is_kept_as_soon_as_it_is_made():
    kept = []
    onlooker = Onlooker(on_start=lambda test_id: seen.append((test_id, len(kept))))
    seen: list[tuple[str, int]] = []
    tests = ("exercise_sound", "exercise_slow")
    runner(onlooker, tests=tests, num_simulated=2, keep=kept.append).run()
    assert [num for _, num in seen] == [0, 2]


def test_the_same_seed_draws_the_same_inputs_and_another_seed_others():
    def seeds(seed: int) -> list[int]:
        report = screened(tests=("exercise_wrong",), num_simulated=1, seed=seed)
        return [o.seed for o in report.records[0].observations if o.is_miscompare][:1]

    assert seeds(1) == seeds(1) != seeds(2)
