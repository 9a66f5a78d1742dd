# SPDX-License-Identifier: Apache-2.0
"""One core of 64 multiplies wrongly, and only one pair of operands.

Source: Dixit et al., "Silent Data Corruptions at Scale", 2021
"""

from __future__ import annotations

import multiprocessing
import os

import numpy as np

from cases.stage import Stage, Wrapped
from truestep.device import Device
from truestep.screening import registry
from truestep.screening.bench import Bench
from truestep.screening.pool import Pool
from truestep.screening.runner import unpinned
from truestep.screening.tasks import Result, Setup, Target, Task
from truestep.verdict import Outcome, Scope

CORES = tuple(f"core{i}" for i in range(64))
SOCKET = Device(id="cpu:0", kind="cpu", model="m", units=CORES)
BAD_CORE = "core41"
PAIR = (-77, 53)


class OneBadPair(Wrapped):
    """A multiplier that gives zero for one pair of operands."""

    def elementwise(self, op, *arrays, site):
        result = self.inner.elementwise(op, *arrays, site=site)
        if op == "multiply":
            x, y = arrays
            result = np.where((x == PAIR[0]) & (y == PAIR[1]), result.dtype.type(0), result)
        return result


def sweep(bench: Bench, seed: int) -> None:
    """Every pair of 8-bit operands."""
    values = np.arange(-128, 128, dtype=np.int64)
    x, y = np.repeat(values, 256), np.tile(values, 256)
    actual = bench.backend.elementwise("multiply", bench.put(x), bench.put(y), site="multiply")
    expected = bench.put(np.multiply(x, y))
    bench.check(actual, expected, site="multiply", coverage={"operands": "all pairs of 8 bits"})


def random_stress(bench: Bench, seed: int) -> None:
    registry.by_id("arithmetic_float32").run(bench, seed)


def stage(run) -> Stage:
    return Stage(
        run=run,
        backend_of=lambda t: OneBadPair() if t.unit == BAD_CORE else Wrapped(),
        targets=[Target(device=SOCKET, unit=core) for core in CORES],
    )


def test_a_sweep_on_each_core_names_the_core():
    verdict = stage(sweep).screen(SOCKET)
    assert verdict.outcome is Outcome.FAIL
    assert (verdict.suspect.scope, verdict.suspect.name) == (Scope.UNIT, f"cpu:0/{BAD_CORE}")
    assert "1 of 65536 elements" in verdict.detail


def test_random_operands_miss_it_and_say_what_they_covered():
    verdict = stage(random_stress).screen(SOCKET)
    assert verdict.outcome is Outcome.PASS
    for power in verdict.power:
        assert any(c.startswith("operands: ") for c in power.coverage), power
        assert power.excluded_rate > 0
    assert "operands that were not drawn" in registry.by_id("arithmetic_float32").blind_to


def test_a_worker_that_cannot_pin_says_so_and_its_device_is_only_partly_covered():
    """Processor 2^20 does not exist, so pinning to it fails as it does where none is granted."""
    device = Device(id="cpu:0", kind="cpu", model="m", units=("core0", "core1048576"))
    mine = min(os.sched_getaffinity(0))
    targets = {
        "cpu:0/core0": Target(device=device, unit="core0", cpu=mine),
        "cpu:0/core1048576": Target(device=device, unit="core1048576", cpu=1 << 20),
    }
    setups = [Setup(backend="numpy", target=target) for target in targets.values()]
    pool = Pool(multiprocessing.get_context("forkserver"), setups)
    try:
        tasks = {k: Task(id=k, test_id="exercise_sound", with_selftest=False) for k in targets}
        results = pool.run(tasks, limit_s=60)
    finally:
        pool.close()
    assert [results[key].is_pinned for key in targets] == [True, False]
    assert unpinned(results, targets) == {"cpu:0"}
    assert unpinned({"cpu:0/core0": results["cpu:0/core0"]}, targets) == set()


def test_a_device_that_needs_no_pinning_is_not_partial():
    targets = {"cuda:0": Target(device=Device(id="cuda:0", kind="cuda", model="m"))}
    assert unpinned({"cuda:0": Result(task_id="t")}, targets) == set()
