# SPDX-License-Identifier: Apache-2.0
"""Planted faults: the same damage each time, where and when they were asked for, nowhere else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truestep.backends.numpy_backend import NumpyBackend
from truestep.backends.open import MODULES, open_backend
from truestep.fault import ANY_SITE, Fault, FaultKind
from truestep.injection.faulty_backend import FaultyBackend
from truestep.injection.patterns import corrupt
from truestep.injection.simulated_devices import SimulatedDevices
from truestep.numerics.bits import FORMATS, as_uint, np_dtype

KINDS = st.sampled_from(FaultKind)
SEEDS = st.integers(0, 2**64 - 1)
FORMAT = st.sampled_from(sorted(FORMATS))
DEVICE = NumpyBackend().devices()[0]


def values_of(name: str, shape: tuple[int, ...] = (4, 5)) -> Any:
    return (np.arange(np.prod(shape)).reshape(shape) % 7 + 1).astype(np_dtype(name))


def copies(fault: Fault, *, num: int, unit: str = "", site: str = "copy") -> tuple[Any, list[Any]]:
    """A backend with a fault, and what it gave for `num` copies of the same array."""
    backend = FaultyBackend(NumpyBackend(), [fault], device=DEVICE, unit=unit)
    host = values_of("float32")
    return backend, [backend.copy(host, DEVICE, site=site) for _ in range(num)]


def hit_calls(fault: Fault, *, num: int = 30, **where: str) -> list[int]:
    return [a.call for a in copies(fault, num=num, **where)[0].activations]


@given(KINDS, SEEDS, st.floats(0.05, 1.0))
def test_the_same_seed_gives_the_same_damage(kind: FaultKind, seed: int, rate: float) -> None:
    fault = Fault(kind=kind, site="copy", rate=rate, seed=seed)
    (one, first), (two, second) = copies(fault, num=20), copies(fault, num=20)
    assert one.activations == two.activations
    assert all(np.array_equal(x, y) for x, y in zip(first, second, strict=True))


def test_another_seed_gives_other_damage() -> None:
    drawn = {
        tuple(
            a.index
            for a in copies(Fault(kind=FaultKind.FLIP, site="copy", seed=s), num=9)[0].activations
        )
        for s in range(20)
    }
    assert len(drawn) == 20


@given(SEEDS, st.floats(0.01, 0.5))
def test_a_result_without_a_hit_is_handed_on_untouched(seed: int, rate: float) -> None:
    backend, results = copies(Fault(kind=FaultKind.FLIP, site="copy", rate=rate, seed=seed), num=40)
    hit = {a.call for a in backend.activations}
    for call, result in enumerate(results):
        assert np.array_equal(result, values_of("float32")) == (call not in hit)


def test_an_untouched_result_is_the_very_object_of_the_inner_backend() -> None:
    backend = FaultyBackend(NumpyBackend(), [], device=DEVICE)
    into = np.zeros((4, 5), np.float32)
    assert backend.copy(values_of("float32"), DEVICE, site="copy", into=into) is into


def test_hits_come_at_the_rate() -> None:
    hits = len(hit_calls(Fault(kind=FaultKind.FLIP, site="copy", rate=0.1, seed=3), num=5000))
    assert 420 < hits < 580


@pytest.mark.parametrize(
    ("asked", "site", "is_hit"),
    [
        (ANY_SITE, "copy/a->b", True),
        ("copy", "copy/a->b", True),
        ("copy/a->b", "copy/a->b", True),
        ("copy/a", "copy/a->b", False),
        ("cop", "copy", False),
        ("matmul", "copy", False),
    ],
)
def test_a_site_is_hit_by_its_prefix(asked: str, site: str, is_hit: bool) -> None:
    assert bool(hit_calls(Fault(kind=FaultKind.FLIP, site=asked), num=3, site=site)) == is_hit


def test_faults_keep_to_their_device_and_unit() -> None:
    fault = Fault(kind=FaultKind.FLIP, site="copy")
    assert hit_calls(replace(fault, device=DEVICE.id), num=2) == [0, 1]
    assert hit_calls(replace(fault, device="cuda:7"), num=2) == []
    assert hit_calls(replace(fault, unit="core1"), num=2, unit="core1") == [0, 1]
    assert hit_calls(replace(fault, unit="core1"), num=2, unit="core0") == []
    assert hit_calls(fault, num=2, unit="core0") == [0, 1]


@pytest.mark.parametrize(
    ("window", "calls"), [((0, None), range(30)), ((4, 7), range(4, 7)), ((28, None), (28, 29))]
)
def test_faults_sleep_outside_their_window(
    window: tuple[int, int | None], calls: range | tuple[int, ...]
) -> None:
    assert hit_calls(Fault(kind=FaultKind.FLIP, site="copy", calls=window)) == list(calls)


def test_calls_are_counted_for_each_site_apart() -> None:
    backend = FaultyBackend(
        NumpyBackend(), [Fault(kind=FaultKind.FLIP, site="copy", calls=(1, 2))], device=DEVICE
    )
    for site in ("copy/x", "copy/y", "copy/x", "copy/y"):
        backend.copy(values_of("float32"), DEVICE, site=site)
    assert [(a.site, a.call) for a in backend.activations] == [("copy/x", 1), ("copy/y", 1)]


@given(SEEDS)
def test_a_stuck_unit_hits_the_same_position_and_bit_always(seed: int) -> None:
    fault = Fault(kind=FaultKind.STUCK, site="copy", seed=seed)
    backend, results = copies(fault, num=12)
    assert len({a.index for a in backend.activations}) == 1
    assert len({r.tobytes() for r in results}) == 1


def test_a_flip_wanders() -> None:
    backend, _ = copies(Fault(kind=FaultKind.FLIP, site="copy", seed=1), num=40)
    assert len({a.index for a in backend.activations}) > 10


def test_a_bit_that_is_stuck_at_what_it_was_is_reported_as_no_change() -> None:
    ones = np.array([1.0, 1.0], np.float32)  # 0x3f800000
    for bit in range(32):
        damaged, index, is_changed = corrupt(
            ones, Fault(kind=FaultKind.STUCK, site="copy", index=1, bit=bit), draw=0
        )
        assert index == 1
        assert is_changed == (not 0x3F800000 >> bit & 1)
        assert np.array_equal(damaged, ones) == (not is_changed)


@given(KINDS, FORMAT, SEEDS, st.integers(0, 19))
def test_one_element_is_damaged_and_said_to_be(
    kind: FaultKind, name: str, draw: int, index: int
) -> None:
    host = values_of(name)
    before = host.copy()
    fault = Fault(kind=kind, site="copy", index=index)
    damaged, found, is_changed = corrupt(host, fault, draw=draw)
    assert found == index
    assert np.array_equal(as_uint(host), as_uint(before))
    assert (damaged.dtype, damaged.shape) == (host.dtype, host.shape)
    changed = np.flatnonzero(as_uint(damaged) != as_uint(host)).tolist()
    assert changed == ([index] if is_changed else [])


@given(FORMAT, st.integers(0, 63), SEEDS)
def test_a_flip_changes_exactly_one_bit(name: str, bit: int, draw: int) -> None:
    host = values_of(name)
    damaged, index, is_changed = corrupt(
        host, Fault(kind=FaultKind.FLIP, site="copy", bit=bit), draw=draw
    )
    width = 1 if name == "bool" else FORMATS[name].bits
    xor = (as_uint(damaged) ^ as_uint(host)).reshape(-1)
    assert is_changed
    assert int(xor[index]) == 1 << bit % width


@pytest.mark.parametrize("name", FORMATS)
def test_nullify_gives_zero_and_scale_gives_the_multiple(name: str) -> None:
    host = values_of(name)
    zero = corrupt(host, Fault(kind=FaultKind.NULLIFY, site="copy", index=3), draw=0)[0]
    assert int(as_uint(zero).reshape(-1)[3]) == 0
    twice = corrupt(host, Fault(kind=FaultKind.SCALE, site="copy", index=3), draw=0)[0]
    expected = 8.0 if name != "bool" else 1.0
    assert float(twice.reshape(-1)[3]) == expected


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("factor", [1e300, -1e300, float("nan"), float("inf")])
def test_a_multiple_out_of_range_is_data(name: str, factor: float) -> None:
    fault = Fault(kind=FaultKind.SCALE, site="copy", index=3, factor=factor)
    damaged = corrupt(values_of(name), fault, draw=0)[0]
    assert damaged.dtype == np_dtype(name)


def test_arrays_in_column_order_are_damaged_where_it_is_said() -> None:
    host = values_of("float32").T
    damaged, index, is_changed = corrupt(
        host, Fault(kind=FaultKind.FLIP, site="copy", index=2, bit=0), draw=0
    )
    assert is_changed
    assert np.flatnonzero((damaged != host).reshape(-1)).tolist() == [index] == [2]


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("dtype", ["bool", "float8_e4m3fn", "float8_e5m2", "bfloat16", "int8"])
def test_narrow_results_are_hit_in_every_library(name: str, dtype: str) -> None:
    pytest.importorskip(name)
    inner = open_backend(name)
    device = inner.devices()[0]
    backend = FaultyBackend(inner, [Fault(kind=FaultKind.FLIP, site="copy", bit=0)], device=device)
    array = backend.put(values_of(dtype), device)
    found = backend.get(backend.copy(array, device, site="copy"))
    (hit,) = backend.activations
    assert np.flatnonzero(as_uint(found) != as_uint(values_of(dtype))).tolist() == [hit.index]


def test_empty_results_are_not_hit() -> None:
    backend = FaultyBackend(
        NumpyBackend(), [Fault(kind=FaultKind.FLIP, site=ANY_SITE)], device=DEVICE
    )
    empty = backend.copy(np.zeros((0, 3), np.float32), DEVICE, site="copy")
    assert empty.shape == (0, 3)
    assert backend.activations == []


def test_every_operation_that_computes_can_be_hit() -> None:
    backend = FaultyBackend(
        NumpyBackend(), [Fault(kind=FaultKind.FLIP, site=ANY_SITE)], device=DEVICE
    )
    x = values_of("float32", (4, 4))
    backend.cast(x, "float64", site="cast")
    backend.matmul(x, x, precision="fp32", out="float32", site="matmul")
    backend.elementwise("add", x, x, site="add")
    backend.reduce("sum", x, axis=0, site="sum")
    backend.copy(x, DEVICE, site="copy")
    assert [a.site for a in backend.activations] == ["cast", "matmul", "add", "sum", "copy"]
    assert all(a.is_changed for a in backend.activations)


def test_several_faults_hit_one_call() -> None:
    faults = [Fault(kind=FaultKind.FLIP, site="copy", index=i, bit=0) for i in (1, 5)]
    backend = FaultyBackend(NumpyBackend(), faults, device=DEVICE)
    found = backend.copy(values_of("float32"), DEVICE, site="copy")
    assert np.flatnonzero((found != values_of("float32")).reshape(-1)).tolist() == [1, 5]


def test_simulated_devices_are_marked_and_compute_on_the_host() -> None:
    backend = SimulatedDevices(NumpyBackend(), 3)
    devices = backend.devices()
    assert [d.id for d in devices] == ["sim:0", "sim:1", "sim:2"]
    assert len({d.serial for d in devices}) == 3
    assert all(d.is_simulated for d in devices)
    assert backend.get(backend.put(values_of("int8"), devices[2])).sum() == values_of("int8").sum()
