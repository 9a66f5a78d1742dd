# SPDX-License-Identifier: Apache-2.0
"""Exact products: proved bounds, one result in every order, limits that cannot be raised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truestep.errors import BoundError, ConfigError
from truestep.numerics import exact
from truestep.numerics.bits import FORMATS, as_uint, canonical_zero, np_dtype
from truestep.numerics.exact import PRECISIONS, Product, ValueClass
from truestep.numerics.inputs import Distribution, random_integers

SEEDS = st.integers(0, 2**64 - 1)
NAMES = st.sampled_from(sorted(PRECISIONS))
SUMS = st.sampled_from([ValueClass.ACCUMULATOR_EXACT, ValueClass.OUTPUT_EXACT])
ACCUMULATORS = {"fp64": np.float64, "int8": np.int32}
"""All others add up in float32."""

LIMITS = {
    ("fp64", ValueClass.ACCUMULATOR_EXACT): (1 << 53) - 1,
    ("fp32", ValueClass.ACCUMULATOR_EXACT): (1 << 24) - 1,
    ("tf32", ValueClass.ACCUMULATOR_EXACT): (1 << 24) - 1,
    ("bf16", ValueClass.ACCUMULATOR_EXACT): (1 << 24) - 1,
    ("bf16", ValueClass.OUTPUT_EXACT): 1 << 8,
    ("fp16", ValueClass.OUTPUT_EXACT): 1 << 11,
    ("fp8", ValueClass.ACCUMULATOR_EXACT): (1 << 8) - 1,
    ("fp8", ValueClass.OUTPUT_EXACT): 1 << 4,
    ("int8", ValueClass.OUTPUT_EXACT): (1 << 31) - 1,
}


def product_of(
    name: str,
    k: int,
    *,
    seed: int,
    value_class: ValueClass = ValueClass.ACCUMULATOR_EXACT,
    distribution: Distribution = Distribution.UNIFORM,
) -> Product:
    return exact.integer_product(
        (3, k, 4),
        precision=PRECISIONS[name],
        out=PRECISIONS[name].natural_output,
        value_class=value_class,
        seed=seed,
        distribution=distribution,
    )


def in_units(side: Any, *, axis: int) -> Any:
    """Integers: each row or column over the largest power of two that divides all of it."""
    fraction, exponent = np.frexp(side.astype(np.float64))
    whole = (fraction * 2.0**53).astype(np.int64)
    lowest = np.where(whole == 0, np.inf, np.ldexp((whole & -whole).astype(float), exponent - 53))
    unit = lowest.min(axis=axis, keepdims=True)
    return side.astype(np.float64) / np.where(np.isinf(unit), 1.0, unit)


def terms(product: Product, name: str) -> Any:
    """The products that each output sums, `[m, k, n]`, in the accumulator's dtype."""
    dtype = ACCUMULATORS.get(name, np.float32)
    return product.a.astype(dtype)[:, :, None] * product.b.astype(dtype)[None]


def in_order(summed: Any) -> Any:
    """The sum along K, one term after the other."""
    return np.cumsum(summed, axis=1, dtype=summed.dtype)[:, -1]


def assert_gives(sums: Any, product: Product) -> None:
    found = canonical_zero(np, sums.astype(product.expected.dtype))
    assert np.array_equal(as_uint(found), as_uint(product.expected))


@given(NAMES, st.integers(1, 3000), SEEDS, SUMS, st.sampled_from(Distribution))
@settings(max_examples=150)
def test_the_bound_of_every_plan_is_proved(
    name: str, k: int, seed: int, value_class: ValueClass, distribution: Distribution
) -> None:
    limit = exact.sum_limit(
        PRECISIONS[name], out=PRECISIONS[name].natural_output, value_class=value_class
    )
    product = product_of(name, k, seed=seed, value_class=value_class, distribution=distribution)
    a, b = in_units(product.a, axis=1), in_units(product.b, axis=0)
    assert (np.abs(a) @ np.abs(b)).max() <= limit
    assert max(np.abs(a).max(), np.abs(b).max()) < 2 ** PRECISIONS[name].operand_bits


@given(
    st.integers(1, 1 << 20),
    st.integers(1, 1 << 53),
    st.integers(1, 53),
    st.integers(0, 3),
)
def test_plans_keep_within_the_limit_and_the_format(
    k: int, limit: int, operand_bits: int, skew: int
) -> None:
    plan = exact.plan_amplitudes(k, limit, operand_bits=operand_bits, skew=skew)
    assert -(-k // plan.period) * plan.a * plan.b <= limit
    assert 1 <= plan.a < 1 << operand_bits
    assert 1 <= plan.b < 1 << operand_bits
    # A longer period would leave room that a shorter one still has.
    assert plan.period == 1 or -(-k // (plan.period - 1)) * plan.a * plan.b > limit


@given(NAMES, st.integers(1, 300), SEEDS, SUMS, st.data())
def test_every_order_of_summation_gives_the_expected_bits(
    name: str, k: int, seed: int, value_class: ValueClass, data: st.DataObject
) -> None:
    product = product_of(
        name,
        k,
        seed=seed,
        value_class=value_class,
        distribution=data.draw(st.sampled_from(Distribution)),
    )
    summed = terms(product, name)
    rng = np.random.default_rng(seed)
    assert_gives(in_order(summed), product)
    assert_gives(in_order(summed[:, rng.permutation(k)]), product)
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, k - 1)), max_size=5)))
    split = [in_order(part) for part in np.split(summed, cuts, axis=1) if part.shape[1]]
    assert_gives(in_order(np.stack(split, axis=1)), product)
    assert_gives(in_order(np.stack(split[::-1], axis=1)), product)


def rounded_by_chance(sums: Any, dtype: str, rng: np.random.Generator) -> Any:
    """Partial sums stored in `dtype`; one that does not fit goes up or down by chance."""
    stored = sums.astype(np_dtype(dtype))
    is_rounded = stored.astype(sums.dtype) != sums
    chance = rng.integers(0, 2, sums.shape).astype(bool)
    as_uint(stored)[is_rounded & chance] += 1
    return stored.astype(sums.dtype)


def summed_by_chance(product: Product, name: str, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    summed = terms(product, name)
    total = np.zeros_like(summed[:, 0])
    for j in rng.permutation(summed.shape[1]):
        total = rounded_by_chance(total + summed[:, j], PRECISIONS[name].natural_output, rng)
    return total


@given(st.sampled_from(["bf16", "fp16"]), st.integers(1, 120), SEEDS)
def test_output_exact_products_survive_stochastic_rounding_of_partial_sums(
    name: str, k: int, seed: int
) -> None:
    product = product_of(name, k, seed=seed, value_class=ValueClass.OUTPUT_EXACT)
    assert_gives(summed_by_chance(product, name, seed), product)


def test_stochastic_rounding_would_spoil_products_that_are_exact_in_the_accumulator_only() -> None:
    product = product_of("bf16", 100, seed=1)
    with pytest.raises(AssertionError):
        assert_gives(summed_by_chance(product, "bf16", 1), product)


@pytest.mark.parametrize(("name", "value_class"), LIMITS)
def test_limits_are_those_of_the_accumulator_and_of_the_output(
    name: str, value_class: ValueClass
) -> None:
    limit = exact.sum_limit(
        PRECISIONS[name], out=PRECISIONS[name].natural_output, value_class=value_class
    )
    assert limit == LIMITS[name, value_class]


@given(st.integers(1, 40), SEEDS)
def test_the_limit_is_tight(k: int, seed: int) -> None:
    a = random_integers((3, k), seed=seed, amplitude=9)
    b = random_integers((k, 2), seed=seed + 1, amplitude=9)
    bound = exact.prove(a, b, 10**6)
    assert bound >= (np.abs(a) @ np.abs(b)).max()
    assert exact.prove(a, b, bound) == bound
    if bound:
        with pytest.raises(BoundError, match="must not exceed"):
            exact.prove(a, b, bound - 1)


def test_one_beyond_the_limit_is_no_longer_held() -> None:
    # The sum of |a||b| is 2^24 + 1: float32 loses the last unit.
    a, b = np.array([[1 << 12, 1]]), np.array([[1 << 12], [1]])
    limit = LIMITS["fp32", ValueClass.ACCUMULATOR_EXACT]
    with pytest.raises(BoundError):
        exact.prove(a, b, limit)
    assert (a.astype(np.float32) @ b.astype(np.float32)).item() != (a @ b).item()
    for name, value in (("bfloat16", 257), ("float16", 2049)):
        assert np.array(value).astype(np_dtype(name)).astype(int) != value


@pytest.mark.parametrize(("k", "limit"), [(0, 5), (5, 0)])
def test_a_plan_needs_terms_and_a_limit(k: int, limit: int) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        exact.plan_amplitudes(k, limit, operand_bits=8)


@given(NAMES.filter(lambda n: n != "int8"), SEEDS)
def test_permutation_products_are_one_rounded_product_each(name: str, seed: int) -> None:
    precision = PRECISIONS[name]
    product = exact.permutation_product(
        (5, 7, 6), precision=precision, out=PRECISIONS[name].natural_output, seed=seed
    )
    assert ((product.b != 0).sum(axis=0) == 1).all()
    # Adding zeros rounds nothing, and float32 holds the product of two 11-bit significands.
    assert_gives(in_order(terms(product, name)), product)


@pytest.mark.parametrize("name", [n for n in PRECISIONS if n != "int8"])
def test_permutation_products_use_every_bit_of_the_significand(name: str) -> None:
    precision = PRECISIONS[name]
    product = exact.permutation_product(
        (40, 30, 40), precision=precision, out=PRECISIONS[name].natural_output, seed=1
    )
    form = FORMATS[precision.operand]
    used = min(precision.operand_bits, 31) - 1
    wanted = ((1 << used) - 1) << (form.mantissa_bits - used)
    for side in (product.a, product.b[product.b != 0]):
        found = as_uint(side) & form.mantissa_mask
        assert np.bitwise_or.reduce(found, axis=None) == wanted
        assert np.bitwise_and.reduce(found, axis=None) == 0
        exponents = np.unique(as_uint(side) & form.exponent_mask)
        assert len(exponents) == 2 * min(precision.max_scale, 6) + 1


LARGE = (70, 80, 90)


def large_operands() -> tuple[Any, Any]:
    m, k, n = LARGE
    assert m * k * n > exact.SMALL_PRODUCT
    a = random_integers((m, k), seed=1, amplitude=100)
    return a, random_integers((k, n), seed=2, amplitude=100)


@pytest.mark.parametrize("bound", [(1 << 24) - 1, (1 << 53) - 1])
def test_large_sums_equal_those_of_integers(bound: int) -> None:
    a, b = large_operands()
    assert np.array_equal(exact.exact_sums(a, b, seed=0, bound=bound), a @ b)


@pytest.mark.parametrize("wrong", [1.0, 0.5, np.nan, np.inf, -(2.0**60)])
def test_a_wrong_library_cannot_spoil_the_expected_sums(wrong: float) -> None:
    calls = []

    def broken(left: Any, right: Any) -> Any:
        calls.append(left.dtype)
        result = left @ right
        result[3, 5] += wrong
        return result

    a, b = large_operands()
    found = exact.exact_sums(a, b, seed=0, bound=1 << 24, multiply=broken)
    assert np.array_equal(found, a @ b)
    assert calls == [np.float64]


def test_the_float_that_multiplies_holds_every_sum() -> None:
    used = []

    def noted(left: Any, right: Any) -> Any:
        used.append(left.dtype)
        return left @ right

    a, b = large_operands()
    for bound in ((1 << 24) - 1, 1 << 24):
        exact.exact_sums(a, b, seed=0, bound=bound, multiply=noted)
    assert used == [np.float32, np.float64]


@given(NAMES, SEEDS, SUMS)
def test_equal_arguments_give_equal_products(name: str, seed: int, value_class: ValueClass) -> None:
    one, two = (product_of(name, 20, seed=seed, value_class=value_class) for _ in range(2))
    for left, right in ((one.a, two.a), (one.b, two.b), (one.expected, two.expected)):
        assert np.array_equal(as_uint(left), as_uint(right))
    other = product_of(name, 20, seed=seed + 1, value_class=value_class)
    assert not np.array_equal(as_uint(one.a), as_uint(other.a))
