# SPDX-License-Identifier: Apache-2.0
"""What is left after Ctrl-C, SIGTERM and SIGKILL: results, and no process."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from end_to_end.cli import descendants_of, start, strict_json, wait_until_gone
from truestep.record import Record
from truestep.store.journal import Journal

LONG = ("--backend", "numpy", "--minutes", "5", "--simulate-devices", "2", "--seed", "1")


def begin(folder: Path, test: str, *more: str):
    return start(
        "screen", *LONG, "--test", test, *more, "--json", "--out", folder, start_new_session=True
    )


def records_in(path: Path) -> list[Record]:
    return list(Journal(path).read()) if path.exists() else []


def wait_for_workers(process) -> None:
    """Until both workers have been at work for a moment."""
    end_s = time.monotonic() + 30
    # The command, the fork server, its tracker, the sampler and two workers.
    while len(descendants_of(process.pid)) < 6 and time.monotonic() < end_s:
        time.sleep(0.02)
    time.sleep(1.0)


@pytest.mark.parametrize(
    ("number", "is_group"),
    [(signal.SIGINT, True), (signal.SIGTERM, False)],
    ids=["SIGINT to the group", "SIGTERM to the parent"],
)
def test_a_signal_ends_the_run_with_what_it_has_and_a_defect_stays_one(tmp_path, number, is_group):
    faults = ("--simulate", "flip:add,rate=0.1,device=sim:1")
    with begin(tmp_path, "exercise_slow", *faults) as process:
        wait_for_workers(process)
        (os.killpg if is_group else os.kill)(process.pid, number)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 1, errors
    told = strict_json(output)
    assert told["run"]["is_interrupted"]
    assert [(r["device"]["id"], r["verdict"]["outcome"]) for r in told["records"]] == [
        ("sim:0", "unknown"),
        ("sim:1", "fail"),
    ]
    assert all(r["verdict"]["num_comparisons"] > 0 for r in told["records"])
    assert len(list(Journal(tmp_path / "journal.jsonl").read())) == 2
    assert wait_until_gone(process.pid) == set()


def test_a_run_that_is_stopped_without_a_defect_judged_nothing(tmp_path):
    with begin(tmp_path, "exercise_slow") as process:
        wait_for_workers(process)
        os.killpg(process.pid, signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 2, errors
    reasons = [r["verdict"]["reason"] for r in strict_json(output)["records"]]
    assert reasons == ["interrupted", "interrupted"]
    assert wait_until_gone(process.pid) == set()


def test_a_second_signal_ends_the_run_at_once(tmp_path):
    with begin(tmp_path, "exercise_hang") as process:
        wait_for_workers(process)
        os.kill(process.pid, signal.SIGINT)
        time.sleep(0.3)
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "interrupted" in errors
    assert wait_until_gone(process.pid) == set()


def test_a_killed_run_leaves_its_complete_records_and_no_process(tmp_path):
    path = tmp_path / "journal.jsonl"
    options = ("--backend", "numpy", "--minutes", "0.01", "--simulate-devices", "2")
    tests = ("--test", "exercise_sound", "--test", "exercise_hang")
    with start("screen", *options, *tests, "--out", tmp_path, start_new_session=True) as process:
        end_s = time.monotonic() + 40
        while len(records_in(path)) < 2 and time.monotonic() < end_s:
            time.sleep(0.1)
        process.kill()
        process.communicate(timeout=30)
    assert wait_until_gone(process.pid) == set()
    kept = records_in(path)
    assert [(r.subject, r.verdict.outcome) for r in kept] == [("exercise_sound", "pass")] * 2
