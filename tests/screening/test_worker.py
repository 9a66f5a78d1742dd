# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from truestep.backends.open import open_backend
from truestep.backends.protocol import Backend
from truestep.device import Device
from truestep.reason import Reason
from truestep.screening.failures import load_failure
from truestep.screening.tasks import Result, Setup, Target, Task
from truestep.screening.worker import STOP, Worker
from truestep.store.schema import from_plain, loads

DEVICE = Device(id="sim:0", kind="cpu", model="m")


def worker(**setup: object) -> tuple[Worker, object]:
    ours, theirs = multiprocessing.Pipe()
    made = Setup(**{"backend": "numpy", "target": Target(device=DEVICE), "run_id": "run", **setup})
    found = Worker(theirs, made, is_pinned=False)
    found.other_end = ours  # held open as long as the worker is
    return found, ours


def is_wrong(result: Result) -> bool:
    return any(o.is_miscompare for o in result.observations)


def task(name: str, **rest: object) -> Task:
    return Task(**{"id": "t", "test_id": name, **rest})


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("exercise_raise", Reason.CRASHED),
        ("exercise_out_of_memory", Reason.OUT_OF_MEMORY),
        ("no_such_test", Reason.CRASHED),
        ("matmul_exact_fp8", Reason.MISSING_CAPABILITY),
    ],
)
def test_a_test_that_raises_is_data(name, reason):
    result = worker()[0].run(task(name))
    assert (result.task_id, result.reason, result.observations) == ("t", reason, ())
    assert result.detail


def test_a_test_that_never_compares_reports_no_comparison():
    result = worker()[0].run(task("exercise_silent"))
    assert (result.reason, result.observations) == (None, ())
    assert result.selftest_caught is False


def test_the_planted_fault_is_found_and_not_by_a_blind_comparison():
    assert worker()[0].run(task("exercise_sound")).selftest_caught is True
    assert worker(is_blind=True)[0].run(task("exercise_sound")).selftest_caught is False
    assert worker()[0].run(task("exercise_sound", with_selftest=False)).selftest_caught is None


class DeafAfter:
    """A device that calls everything equal after so many comparisons."""

    def __init__(self, inner: Backend, num: int) -> None:
        self.inner = inner
        self.num = num

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def equal(self, actual: object, expected: object) -> bool:
        self.num -= 1
        return self.num < 0 or self.inner.equal(actual, expected)


@pytest.mark.parametrize(("num", "is_caught"), [(0, False), (5, False), (16, True)])
def test_a_comparison_that_breaks_on_the_way_is_noticed(num, is_caught):
    """Two rounds between two self-tests, with four comparisons each."""
    made, _ = worker()
    made._backend = DeafAfter(open_backend("numpy"), num)
    assert made.run(task("exercise_sound")).selftest_caught is is_caught


def test_rounds_that_are_asked_for_are_told_apart():
    result = worker()[0].run(task("exercise_wrong", seeds=(3, 3, 4), with_selftest=False))
    assert [r.seed for r in result.rounds] == [3, 3, 4]
    assert all(r.is_miscompare for r in result.rounds)
    digests = [r.coverage["inputs_digest"] for r in result.rounds]
    assert digests[0] == digests[1] != digests[2]


def test_stop_ends_a_test_after_its_round():
    made, ours = worker()
    ours.send(STOP)
    result = made.run(task("exercise_slow", seconds=600))
    assert (result.reason, result.num_rounds) == (Reason.INTERRUPTED, 1)
    assert result.observations[0].num_comparisons == 4


def test_the_first_miscompare_is_handed_in_at_once_with_its_evidence(tmp_path):
    made, ours = worker(evidence_dir=str(tmp_path))
    result = made.run(task("exercise_wrong"))
    interim = [from_plain(Result, loads(ours.recv_bytes())) for _ in range(2)]
    assert all(r.is_interim and is_wrong(r) for r in interim)
    assert interim[1].evidence == result.evidence != ()
    assert not result.is_interim
    (sheet,) = (a for a in result.evidence if a.name.endswith(".json"))
    failure = load_failure(Path(tmp_path) / Path(sheet.name).name)
    assert (failure.test_id, failure.device) == ("exercise_wrong", "sim:0")
    assert failure.inputs_digest


def test_evidence_that_cannot_be_written_loses_no_result(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    made, _ = worker(evidence_dir=str(tmp_path / "file"))
    result = made.run(task("exercise_wrong"))
    assert is_wrong(result)
    assert result.evidence == ()
    assert "evidence was not saved" in capsys.readouterr().err
