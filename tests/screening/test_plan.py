# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from truestep.device import Device
from truestep.environment import Environment
from truestep.screening import registry
from truestep.screening.plan import (
    LEAST_MEMORY_BYTES,
    MOST_QUICK_MEMORY_BYTES,
    lacks,
    memory_per_target,
    not_covered,
    plan,
    targets_of,
)
from truestep.screening.tasks import Found

TESTS = registry.all_tests()
NEEDS = sorted({(n.op, n.precision) for t in TESTS for n in t.needs})


@st.composite
def found(draw: st.DrawFn) -> Found:
    number = draw(st.integers(0, 3))
    return Found(
        device=Device(id=f"cuda:{number}", kind="cuda", model="m"),
        environment=Environment(entries={}),
        supported=frozenset(draw(st.lists(st.sampled_from(NEEDS)))),
        free_memory_bytes=draw(st.integers(0, 1 << 40)),
    )


devices = st.lists(found(), max_size=4, unique_by=lambda f: f.device.id)
chosen = st.lists(st.sampled_from(TESTS), max_size=6, unique_by=lambda t: t.id)


@given(chosen, devices, st.floats(0.001, 1e5), st.sets(st.sampled_from([t.id for t in TESTS])))
def test_the_budget_is_spent_on_tests_that_some_device_can_run(tests, present, budget_s, named):
    planned = plan(tests, present, budget_s=budget_s, named=named)
    if planned:
        assert math.isclose(sum(p.seconds for p in planned), budget_s)
    known = {f.device.id: f for f in present}
    for step in planned:
        assert step.devices
        assert step.seconds > 0
        if step.test.id not in named:
            assert not any(lacks(step.test, known[d]) for d in step.devices)
    # Without a name, what no device can run is left out; with one, it is kept to be told.
    expected = [
        t
        for t in tests
        if any(t.id in named or not (lacks(t, f) or t.least_s > budget_s) for f in present)
    ]
    assert [p.test for p in planned] == expected
    # What is left out is told: no device passes for a test that it did not run.
    gaps = "\n".join(not_covered(tests, present, budget_s=budget_s, named=named))
    for test in tests:
        ran = {d for p in planned if p.test is test for d in p.devices}
        assert (test.id in gaps) == (
            test.id not in named and (test.least_s > budget_s or len(ran) < len(present))
        )


@given(found(), st.integers(1, 4), st.integers(1, 256))
def test_memory_of_all_workers_stays_within_the_granted_share(one, level, num_targets):
    each = memory_per_target(one, level=level, num_targets=num_targets)
    least = LEAST_MEMORY_BYTES * num_targets
    assert least <= each * num_targets <= max(one.free_memory_bytes, least)
    if level == 1:
        assert each * num_targets <= max(MOST_QUICK_MEMORY_BYTES, least)


def test_a_socket_has_a_worker_on_each_granted_core_and_a_gpu_has_one():
    socket = Device(id="cpu:0", kind="cpu", model="m", units=("core3", "core12"))
    assert [(t.key, t.cpu) for t in targets_of(socket)] == [
        ("cpu:0/core3", 3),
        ("cpu:0/core12", 12),
    ]
    (gpu,) = targets_of(Device(id="cuda:0", kind="cuda", model="m"))
    assert (gpu.key, gpu.cpu) == ("cuda:0", None)


def test_exercises_belong_to_no_level_and_are_reached_by_their_exact_id():
    assert not [t for t in registry.choose((), level=4) if t.id.startswith("exercise")]
    assert [t.id for t in registry.choose(("exercise_hang",), level=1)] == ["exercise_hang"]
    assert "" not in registry.groups(TESTS)
    assert not [t for t in TESTS if t.id.startswith("exercise")]
