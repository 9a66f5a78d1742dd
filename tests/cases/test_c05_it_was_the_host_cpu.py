# SPDX-License-Identifier: Apache-2.0
"""Wrong with all threads at a high clock, right with one thread or a lower clock: the host CPU.

Source: https://github.com/duckdb/duckdb/issues/24905
"""

from __future__ import annotations

from judging.trials import alone
from truestep.device import Device
from truestep.judging.attribution import attribute
from truestep.judging.rules import Evidence, ExperimentKind, judge
from truestep.observation import Observation
from truestep.verdict import Outcome, Scope

HOST = Device(id="cpu:0", kind="cpu", model="m")


def phase(device: str, *, wrong: int, threads: str = "32", clock: str = "5.5 GHz") -> Observation:
    conditions = {"threads": threads, "clock": clock}
    return alone(device, wrong=wrong, total=30, site="sum/int64", conditions=conditions)


STOCK = phase("cpu:0", wrong=14)
CAPPED = phase("cpu:0", wrong=0, clock="4.0 GHz")
STOCK_AGAIN = phase("cpu:0", wrong=3)
ONE_THREAD = phase("cpu:0", wrong=0, threads="1")
OTHER_HOST = phase("cpu:1", wrong=0)
ACCELERATOR = phase("cuda:0", wrong=0)
LOG = [STOCK, CAPPED, STOCK_AGAIN, ONE_THREAD, OTHER_HOST, ACCELERATOR]


def test_it_is_the_host_cpu_and_depends_on_load_and_clock():
    suspect = attribute(LOG, subject="cpu:0")
    assert (suspect.scope, suspect.name) == (Scope.HOST_CPU, "cpu:0")
    assert suspect.because.endswith("depends on clock, threads")


def test_the_accelerator_and_with_the_second_host_data_and_software_are_cleared():
    suspect = attribute(LOG)
    assert "cuda:0" in suspect.because
    assert "cpu:1" in suspect.because
    assert suspect.scope not in (Scope.DEVICE, Scope.SOFTWARE_OR_PLATFORM, Scope.INPUT_DATA)


def test_without_the_second_host_data_and_software_are_not_cleared():
    suspect = attribute([STOCK, CAPPED, STOCK_AGAIN, ONE_THREAD], subject="cpu:0")
    assert (suspect.scope, suspect.name) == (Scope.UNKNOWN, "")


def test_a_pass_with_one_thread_is_no_coverage_of_all_threads():
    alone_verdict = judge(Evidence(device=HOST, first=(ONE_THREAD,), selftest_caught=True))
    (power,) = alone_verdict.power
    assert "threads: 1" in power.coverage
    assert "threads: 32" not in power.coverage
    tried = frozenset(ExperimentKind)
    both = judge(Evidence(device=HOST, first=(ONE_THREAD, STOCK), tried=tried))
    assert both.outcome is Outcome.FAIL
    assert both.power == ()


def test_temperature_and_firmware_are_left_open_and_the_clock_is_not():
    verdict = judge(Evidence(device=HOST, first=tuple(LOG[:4]), tried=frozenset(ExperimentKind)))
    assert verdict.untested == ("firmware", "temperature")
