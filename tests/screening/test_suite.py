# SPDX-License-Identifier: Apache-2.0
"""Every screening test: what it declares, that it is clean here, and that it finds what it must."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from truestep.backends.open import MODULES, open_backend
from truestep.backends.protocol import Backend
from truestep.device import Device
from truestep.fault import Fault, FaultKind
from truestep.injection.faulty_backend import FaultyBackend
from truestep.injection.simulated_devices import SimulatedDevices
from truestep.numerics.bits import FORMATS, flip_bit, np_dtype
from truestep.observation import Observation, Role
from truestep.reference import ReferenceKind
from truestep.screening import registry, selftest
from truestep.screening.bench import COMPARISON, Bench
from truestep.screening.spec import ScreeningTest

IDS = (
    *(f"matmul_exact_{p}" for p in ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")),
    *(f"matmul_permutation_{p}" for p in ("fp64", "fp32", "tf32", "bf16", "fp16")),
    *(f"arithmetic_{d}" for d in ("float64", "float32", "bfloat16", "float16")),
    *(f"cast_{d}" for d in ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")),
    "integers_int32",
    "integers_int64",
    *(f"reduction_{d}" for d in ("float64", "float32", "bfloat16", "float16", "int32")),
    *(f"indexing_{d}" for d in ("float32", "bfloat16", "float16", "int32")),
    *(f"function_{f}" for f in ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "reciprocal")),
    *(f"function_{f}" for f in ("sin", "cos", "tanh", "erf", "gelu", "silu")),
    *(f"function_{f}" for f in ("softmax", "layer_norm", "rms_norm")),
    *(
        f"attention_{kernel}_{d}"
        for kernel in ("math", "flash", "efficient", "cudnn")
        for d in ("float32", "bfloat16", "float16")
    ),
    "copy_host_pageable",
    "copy_host_pinned",
    "copy_matrix",
    "memory_patterns",
    "memory_addresses",
    "memory_inversions",
    "stress_steady_fp32",
    "stress_steady_bf16",
    "stress_burst_fp32",
    *(f"exact_training_{s}_{p}" for s in ("s", "m", "l", "xl") for p in ("fp32", "tf32", "bf16")),
)
"""Ids are permanent: names are added here, and never changed or taken away."""

TESTS = registry.all_tests()
SEED = 11
BY_ID = pytest.mark.parametrize("test", TESTS, ids=lambda test: test.id)
IN_EVERY_LIBRARY = pytest.mark.parametrize("name", MODULES)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As in a worker; and other tests' threads are left as they were."""
    if not find_spec("torch"):
        yield
        return
    torch = import_module("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def family(test: ScreeningTest) -> str:
    return test.id.split("_")[0]


FIRST_OF_FAMILY = {family(test): test.id for test in reversed(TESTS)}
"""XLA compiles each shape anew, so one test of each family stands for all."""


def opened(name: str, test: ScreeningTest) -> tuple[Backend, Device]:
    pytest.importorskip(name)
    if name == "jax" and test.id not in FIRST_OF_FAMILY.values():
        pytest.skip("another test of this family runs on XLA")
    if test.id.startswith("exact_training") and (name == "jax" or "_s_" not in test.id):
        pytest.skip("takes long: see tests/workloads and benchmarks/campaign_exact_training.py")
    backend = open_backend(name)
    device = backend.devices()[0]
    if not all(backend.supports(n.op, n.precision, device) for n in test.needs):
        pytest.skip(f"{name} cannot run {test.id} here")
    return backend, device


def bench_on(backend: Backend, *, device: Device, **options: Any) -> Bench:
    return Bench(backend=backend, device=device, memory_bytes=1 << 23, **options)


def observed(bench: Bench) -> tuple[Observation, ...]:
    return bench.observations(name="t", kind=ReferenceKind.EXACT, provenance="t", run_id="r")


def test_ids_are_permanent_and_unique() -> None:
    assert tuple(t.id for t in TESTS) == IDS
    assert len(set(IDS)) == len(IDS)


@BY_ID
def test_every_test_declares_what_it_does_and_what_it_cannot_see(test: ScreeningTest) -> None:
    for words in (test.stresses, test.known_because, test.blind_to):
        assert len(words) > 10
    assert test.needs
    assert test.groups
    assert test.share > 0
    assert test.min_rounds >= 1
    assert registry.by_id(test.id) is test


@IN_EVERY_LIBRARY
@BY_ID
def test_every_test_is_clean_on_a_sound_device(test: ScreeningTest, name: str) -> None:
    backend, device = opened(name, test)
    bench = bench_on(backend, device=device)
    test.run(bench, SEED)
    assert bench.num_comparisons > 0
    assert bench.num_miscompares == 0
    assert bench.failures == []
    assert all(seen.coverage and seen.value_class and seen.site for seen in observed(bench))


@IN_EVERY_LIBRARY
@BY_ID
def test_every_test_finds_the_planted_fault_unless_it_is_blind(
    test: ScreeningTest, name: str
) -> None:
    backend, device = opened(name, test)
    caught = {
        is_blind: selftest.is_caught(
            test,
            backend=backend,
            device=device,
            unit="",
            seed=SEED,
            make_bench=partial(bench_on, device=device, is_blind=is_blind),
        )
        for is_blind in (False, True)
    }
    assert caught == {False: True, True: False}


def test_a_site_that_is_compared_and_cannot_be_hit_is_not_proved() -> None:
    sound = registry.by_id("exercise_sound")
    backend, device = opened("numpy", sound)

    def run(bench: Bench, seed: int) -> None:
        sound.run(bench, seed)
        past = bench.backend.xp.add(bench.put(np.ones(4)), bench.put(np.ones(4)))
        bench.check(past, bench.put(np.full(4, 2.0)), site="add/float64")

    def caught(test: ScreeningTest) -> bool:
        make_bench = partial(bench_on, device=device)
        return selftest.is_caught(
            test, backend=backend, device=device, unit="", seed=SEED, make_bench=make_bench
        )

    assert caught(sound)
    assert not caught(replace(sound, run=run))


def inputs_digest(test: ScreeningTest, backend: Backend, device: Device, seed: int) -> str:
    bench = bench_on(backend, device=device, is_digesting=True)
    test.run(bench, seed)
    return bench.inputs_digest


@BY_ID
def test_a_seed_draws_the_same_inputs_in_every_library(test: ScreeningTest) -> None:
    backend, device = opened("torch", test)
    first, again, other = (inputs_digest(test, backend, device, seed) for seed in (1, 1, 2))
    assert first == again
    # Few memory patterns are drawn, so two seeds may share one; a training is always the same.
    if family(test) != "exact":
        others = {first, other, *(inputs_digest(test, backend, device, s) for s in (3, 4))}
        assert len(others) > 1
    numpy = open_backend("numpy")
    is_able = all(numpy.supports(n.op, n.precision, device) for n in test.needs)
    # Where nothing is exact, a result of the library is put back on the device.
    if is_able and test.reference is ReferenceKind.EXACT:
        assert inputs_digest(test, numpy, device, 1) == first


def test_a_round_without_digesting_has_no_digest() -> None:
    backend, device = opened("numpy", registry.by_id("cast_float32"))
    assert bench_on(backend, device=device).inputs_digest == ""


NAMES = [name for name in FORMATS if name != "bool"]


@IN_EVERY_LIBRARY
@pytest.mark.parametrize("dtype", [*NAMES, "bool"])
def test_the_bench_names_any_wrong_bit_of_any_element(dtype: str, name: str) -> None:
    backend, device = opened(name, registry.by_id("cast_float32"))
    expected_host = (np.arange(24).reshape(4, 6) % 7 + 1).astype(np_dtype(dtype))
    expected = backend.put(expected_host, device)
    for bit in range(1 if dtype == "bool" else FORMATS[dtype].bits):
        position = (5 * bit + 3) % 24
        wrong = backend.put(flip_bit(expected_host, index=position, bit=bit), device)
        bench = bench_on(backend, device=device)
        bench.seed = 77
        assert not bench.check(wrong, expected, site="s", value_class="v", inputs={"x": expected})
        (seen,) = observed(bench)
        assert seen.value == seen.num_comparisons == 1
        assert seen.seed == 77
        assert seen.miscompare is not None
        assert seen.miscompare.count == 1
        assert seen.miscompare.positions == (position,)
        assert seen.miscompare.bits == (bit,)
        (failure,) = bench.failures
        assert set(failure.arrays) == {"x", "actual", "expected"}


def test_the_sign_of_zero_is_no_miscompare_and_does_not_hide_one() -> None:
    backend, device = opened("numpy", registry.by_id("cast_float32"))
    bench = bench_on(backend, device=device)
    expected = np.array([0.0, 1.0, 2.0], np.float32)
    assert bench.check(np.array([-0.0, 1.0, 2.0], np.float32), expected, site="s")
    assert not bench.check(np.array([-0.0, 1.0, 3.0], np.float32), expected, site="s")
    (seen,) = observed(bench)
    assert seen.miscompare is not None
    assert seen.miscompare.positions == (2,)


@IN_EVERY_LIBRARY
@pytest.mark.parametrize("dtype", ["float32", "float8_e4m3fn"])
def test_a_value_damaged_into_minus_zero_shows_the_damaged_bit_alone(name: str, dtype: str) -> None:
    backend, device = opened(name, registry.by_id("cast_float32"))
    bench = bench_on(backend, device=device)
    highest = FORMATS[dtype].bits - 2
    expected = np.array([0.0, -2.0]).astype(np_dtype(dtype))
    wrong = flip_bit(expected, index=1, bit=highest)
    assert wrong[1] == 0
    assert not bench.check(backend.put(wrong, device), backend.put(expected, device), site="s")
    (seen,) = observed(bench)
    assert seen.miscompare is not None
    assert seen.miscompare.bits == (highest,)


@IN_EVERY_LIBRARY
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_not_finite_is_a_miscompare(name: str, value: float) -> None:
    backend, device = opened(name, registry.by_id("cast_float32"))
    bench = bench_on(backend, device=device)
    wrong = backend.put(np.array([1.0, value], np.float32), device)
    expected = backend.put(np.array([1.0, 1.0], np.float32), device)
    assert not bench.check(wrong, expected, site="s")


def test_an_expected_value_that_is_nan_is_our_own_mistake() -> None:
    backend, device = opened("numpy", registry.by_id("cast_float32"))
    nan = np.array([np.nan], np.float32)
    with pytest.raises(ValueError, match="holds NaN"):
        bench_on(backend, device=device).check(nan, nan, site="s")


class MistakesEqualForDifferent:
    """A device whose compare unit, or whose digest, is faulty."""

    def __init__(self, inner: Backend) -> None:
        self.inner = inner
        self.num_digests = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def equal(self, actual: Any, expected: Any) -> bool:
        return not self.inner.equal(actual, expected)

    def digest_many(self, arrays: Any) -> tuple[str, ...]:
        self.num_digests += 1
        return tuple(f"{self.num_digests:032x}" for _ in arrays)


@pytest.mark.parametrize("by_digest", [False, True])
def test_equal_bits_that_the_device_calls_different_are_a_finding(by_digest: bool) -> None:
    backend, device = opened("numpy", registry.by_id("cast_float32"))
    bench = bench_on(MistakesEqualForDifferent(backend), device=device)
    same = np.ones(4, np.float32)
    assert not bench.check(same, same.copy(), site="s", by_digest=by_digest)
    (seen,) = observed(bench)
    assert seen.value == 1
    assert seen.coverage["differs_at"] == COMPARISON
    assert seen.miscompare is not None
    assert (seen.miscompare.dtype, seen.miscompare.bits) == ("bool", (0,))


def test_a_copy_that_damages_the_sign_of_a_zero_shows_that_bit() -> None:
    backend, device = opened("numpy", registry.by_id("cast_float32"))
    bench = bench_on(backend, device=device)
    zeros = np.zeros(4, np.float32)
    assert not bench.check(flip_bit(zeros, index=2, bit=31), zeros, site="s", by_digest=True)
    (seen,) = observed(bench)
    assert seen.miscompare is not None
    assert (seen.miscompare.positions, seen.miscompare.bits) == ((2,), (31,))


def test_a_copy_names_sender_and_receiver() -> None:
    test = registry.by_id("copy_matrix")
    backend = SimulatedDevices(opened("numpy", test)[0], 2)
    device, peer = backend.devices()
    faulty = FaultyBackend(
        backend, [Fault(kind=FaultKind.FLIP, site=f"copy/{device.id}->{peer.id}")], device=device
    )
    bench = bench_on(faulty, device=device, peers=(peer,))
    test.run(bench, 1)
    seen = {tuple((p.device, p.role) for p in o.parties): o.is_miscompare for o in observed(bench)}
    assert seen == {
        ((device.id, Role.SENDER), (device.id, Role.RECEIVER)): False,
        ((device.id, Role.SENDER), (peer.id, Role.RECEIVER)): True,
    }


def test_tests_are_chosen_by_id_and_by_group() -> None:
    assert registry.choose(["cast_float16"], level=1) == (registry.by_id("cast_float16"),)
    casts = registry.choose(["cast", "cast_float16"], level=1)
    assert [t.id for t in casts] == [t.id for t in TESTS if t.id.startswith("cast_")]
    assert registry.choose([], level=4) == TESTS
    with pytest.raises(ValueError, match="must name an id or a group"):
        registry.choose(["no such test"], level=1)
    with pytest.raises(ValueError, match="truestep tests"):
        registry.by_id("no such test")
