# SPDX-License-Identifier: Apache-2.0
"""Why the exact training is exact, that it learns, and that no damage stays unnamed."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truestep.backends.open import MODULES, open_backend
from truestep.fault import Fault, FaultKind
from truestep.injection.faulty_backend import FaultyBackend
from truestep.numerics.bits import flip_bit
from truestep.screening.bench import Bench
from truestep.workloads import copy_task, exact_goldens
from truestep.workloads.exact_products import POWERS, Mode, requantise
from truestep.workloads.exact_reference import (
    HostProducts,
    ReferenceRun,
    digests_of,
    num_right,
)
from truestep.workloads.exact_sizes import (
    AMPLITUDE,
    LARGEST_SHIFT,
    LIMIT,
    SIZES,
    bounds,
    initial_masters,
    operations,
)
from truestep.workloads.exact_transformer import ExactTransformer

S = SIZES["S"]
EVERY_SIZE = pytest.mark.parametrize("size", SIZES.values(), ids=lambda size: size.name)
NUMPY = HostProducts("float64").xp


@EVERY_SIZE
def test_every_accumulator_stays_strictly_below_its_limit(size):
    for name, bound in bounds(size).items():
        assert bound.limit + (1 << LARGEST_SHIFT) // 2 < LIMIT, name
        assert max(bound.a, bound.b) < 1 << 8, "bf16 reads 8 bits"
    shifts = [n for key, n in size.shifts.items() if key not in ("weight", "table", "step")]
    assert max(shifts) <= LARGEST_SHIFT
    for parameter in initial_masters(size):
        assert (AMPLITUDE + 1) << size.weight_shift(parameter) < LIMIT


def test_errors_become_smaller_where_a_batch_has_more_tokens():
    assert S.error_amplitude == AMPLITUDE
    wide = replace(S, num_sequences=512)
    assert 1 <= wide.error_amplitude < AMPLITUDE
    assert all(bound.limit < LIMIT for bound in bounds(wide).values())


class Watched(HostProducts):
    """Keeps K and the largest operands and sum of |a||b| of every product."""

    def __init__(self) -> None:
        super().__init__("float64")
        self.seen: list[tuple[int, ...]] = []

    def matmul(self, a: Any, b: Any, *, precision: str, out: str, site: str) -> Any:
        assert np.array_equal(a, np.floor(a))
        assert np.array_equal(b, np.floor(b))
        sums = np.abs(a) @ np.abs(b)
        self.seen.append((a.shape[-1], *(int(np.abs(x).max()) for x in (a, b)), int(sums.max())))
        return super().matmul(a, b, precision=precision, out=out, site=site)


@pytest.mark.parametrize(("name", "num_steps"), [("S", 96), ("M", 3), ("L", 1)])
def test_a_run_never_exceeds_a_bound(name, num_steps):
    size = SIZES[name]
    masters, constants = dict(initial_masters(size)), copy_task.constants(size)
    for number in range(num_steps):
        watched = Watched()
        model = replace(ReferenceRun(size, "accumulator").model, backend=watched)
        masters, shown = model.step(masters, copy_task.batch(size, number), constants)
        assert len(shown) == len(operations(size))
        for bound, (k, a, b, total) in zip(bounds(size).values(), watched.seen, strict=True):
            assert k == bound.k
            assert sorted((a, b)) <= sorted((bound.a, bound.b))
            assert max(a, b) <= max(bound.a, bound.b)
            assert total <= bound.limit
        assert all(np.array_equal(m, np.floor(m)) for m in masters.values())


@given(
    x=st.lists(st.integers(-(LIMIT - (1 << LARGEST_SHIFT)), LIMIT - (1 << LARGEST_SHIFT))),
    shift=st.integers(1, LARGEST_SHIFT),
)
def test_requantising_in_float32_is_a_shift_of_integers(x, shift):
    integers = np.array(x, dtype=np.int64)
    expected = np.clip((integers + (1 << shift >> 1)) >> shift, -127, 127)
    actual = requantise(NUMPY, integers.astype(np.float32), shift)
    assert actual.dtype == np.float32
    assert np.array_equal(actual, expected)


def test_the_table_holds_exact_powers_of_two():
    assert all(math.frexp(power) == (0.5, 1 - n) for n, power in enumerate(POWERS))


def test_the_second_half_repeats_the_first_and_only_it_is_scored():
    batch = copy_task.batch(S, 5)
    tokens = batch["tokens"].reshape(S.num_sequences, -1)
    targets = batch["targets"].reshape(tokens.shape)
    half = S.num_positions // 2
    assert np.array_equal(tokens[:, :half], tokens[:, half:])
    assert np.array_equal(targets[:, half - 1 : -1], tokens[:, half:])
    assert copy_task.num_scored(targets) == S.num_sequences * half
    assert not np.array_equal(tokens, copy_task.batch(S, 6)["tokens"].reshape(tokens.shape))
    # A word says nothing of the next one, so no table of pairs can solve it.
    assert set(np.unique(tokens)) == set(range(S.vocabulary))


@pytest.mark.parametrize("value_class", ["accumulator", "bf16"])
def test_it_learns_and_falls_to_chance_without_attention(value_class):
    *_, (masters, _) = ReferenceRun(S, value_class).steps()
    num = copy_task.num_scored(copy_task.batch(S, copy_task.HELD_OUT)["targets"])
    assert num_right(S, value_class, masters) > 0.95 * num
    chance = 1 / S.vocabulary
    slack = 3 * math.sqrt(chance * (1 - chance) / num)
    found = num_right(S, value_class, masters, has_attention=False) / num
    assert abs(found - chance) < slack
    before = num_right(S, value_class, initial_masters(S)) / num
    assert abs(before - chance) < slack


@pytest.mark.parametrize("name", MODULES)
def test_a_zero_whose_lowest_bit_flips_is_found_in_every_library(name):
    pytest.importorskip(name)
    backend = open_backend(name)
    device = backend.devices()[0]
    _, right = ReferenceRun(S, "accumulator").step(initial_masters(S), 0)
    operation = "forward/layer0.attention.mix"
    index = operations(S).index(operation)
    fault = Fault(
        kind=FaultKind.FLIP,
        site="matmul/fp32/forward",
        calls=(index, index + 1),
        index=int((right[index] == 0).argmax()),
        bit=0,
    )

    def put(hosts: Any) -> Any:
        return {key: backend.put(host, device) for key, host in hosts.items()}

    faulty = FaultyBackend(backend, [fault], device=device)
    _, shown = ExactTransformer(faulty, S, Mode("fp32", "float32")).step(
        put(initial_masters(S)), put(copy_task.batch(S, 0)), put(copy_task.constants(S))
    )
    hosts = tuple(backend.get(array) for array in shown)
    place = exact_goldens.load(S, "accumulator").first_difference(digests_of(hosts)[None])
    assert str(place) == "step 0 forward layer0.attention.mix"


@pytest.fixture(scope="module")
def campaign(repository) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(repository / "benchmarks")
        yield import_module("campaign_exact_training")


def test_every_flipped_bit_is_found_and_named(campaign):
    found = campaign.findings(argparse.Namespace(scale=0.02))
    assert {f.kind for f in found} == set(campaign.KINDS)
    assert all(f.is_named for f in found if not f.is_masked)
    accumulators = [f for f in found if f.kind == "accumulator"]
    assert len(accumulators) == 10
    assert not any(f.is_masked for f in accumulators)


def test_the_bench_names_step_operation_position_and_bit():
    backend = open_backend("numpy")
    bench = Bench(backend=backend, device=backend.devices()[0])
    right = np.arange(6, dtype=np.float32).reshape(2, 3)
    golden = exact_goldens.load(S, "accumulator")
    wrong = flip_bit(right, index=(1, 2), bit=7)

    def check(actual: Any, found: str) -> bool:
        return bench.check_digest(
            actual,
            found=found,
            known="0" * 32,
            right=lambda: right,
            place=str(exact_goldens.Place(4, operations(golden.size)[0])),
            site="s",
            value_class="v",
            inputs={"x": right},
            coverage={"training": "S"},
        )

    assert check(wrong, "0" * 32), "only the digest counts"
    assert not check(wrong, "1" * 32)
    # Equal bits with another digest: the digest was wrong, which is a miscompare too.
    assert not check(right, "1" * 32)
    (seen,) = bench.observations(name="t", kind=Any, provenance="", run_id="")
    assert (seen.num_comparisons, seen.value) == (3, 2)
    assert seen.coverage["differs_at"] == "step 4 forward table"
    assert seen.miscompare is not None
    assert (seen.miscompare.first, seen.miscompare.bits) == ((1, 2), (7,))
    assert set(bench.failures[0].arrays) == {"x", "actual", "expected"}
