# SPDX-License-Identifier: Apache-2.0
"""A true product is accepted, and a product with one wrong element is not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truestep.errors import BoundError
from truestep.numerics import bits
from truestep.numerics.checksum import verify_product

SIZES = st.tuples(*[st.integers(1, 6)] * 3)
SEEDS = st.integers(0, 1 << 32)


def product(
    sizes: tuple[int, int, int], seed: int, leading: tuple[int, ...] = ()
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    m, k, n = sizes
    rng = np.random.default_rng(seed)
    a = rng.integers(-100, 101, (*leading, m, k))
    b = rng.integers(-100, 101, (*leading, k, n))
    return a, b, a @ b


@given(SIZES, SEEDS, st.sampled_from([(), (3,), (2, 2)]), st.sampled_from(["int64", "float32"]))
def test_every_true_product_is_accepted(
    sizes: tuple[int, int, int], seed: int, leading: tuple[int, ...], dtype: str
) -> None:
    a, b, c = (x.astype(dtype) for x in product(sizes, seed, leading))
    assert verify_product(a, b, c, seed=seed)


@given(SIZES, SEEDS, st.data())
def test_one_changed_element_is_always_rejected(
    sizes: tuple[int, int, int], seed: int, data: st.DataObject
) -> None:
    a, b, c = product(sizes, seed)
    index = data.draw(st.integers(0, c.size - 1))
    bit = data.draw(st.integers(0, 63))
    assert not verify_product(a, b, bits.flip_bit(c, index=index, bit=bit), seed=seed)
    real = c.astype(np.float32)
    wrong = bits.flip_bit(real, index=index, bit=bit % 32)
    if wrong.reshape(-1)[index] != real.reshape(-1)[index]:
        assert not verify_product(a, b, wrong, seed=seed)


@pytest.mark.parametrize(
    "wrong", [0.5, 1e-30, 5e-324, np.nan, np.inf, -np.inf, 2.0**63, -(2.0**63), 2.0**64, 1e300]
)
@pytest.mark.parametrize("unit", [1.0, 0.125, 2.0**40])
def test_what_is_no_integer_in_range_is_rejected(wrong: float, unit: float) -> None:
    a = b = np.zeros((2, 2))
    c = np.zeros((2, 2))
    assert verify_product(a, b, c * unit, seed=0, unit=unit)
    c[1, 0] = wrong if wrong == 5e-324 else wrong * unit
    assert not verify_product(a, b, c, seed=0, unit=unit)


def test_a_large_unsigned_value_does_not_wrap_to_the_true_one() -> None:
    a, b = np.array([[-1]]), np.array([[1]])
    assert verify_product(a, b, np.array([[-1]]), seed=0)
    assert not verify_product(a, b, np.array([[(1 << 64) - 1]], np.uint64), seed=0)


@given(SIZES, SEEDS, st.integers(-20, 20))
def test_a_unit_scales_the_product(sizes: tuple[int, int, int], seed: int, power: int) -> None:
    a, b, c = product(sizes, seed)
    assert verify_product(a, b, c * 2.0**power, seed=seed, unit=2.0**power)
    assert verify_product(a, b, c * 2.0**power, seed=seed, unit=2.0 ** (power + 1)) == (not c.any())


@given(SEEDS)
def test_swapped_columns_are_rejected(seed: int) -> None:
    a, b, c = product((4, 4, 4), seed)
    swapped = c[:, [1, 0, 2, 3]]
    assert verify_product(a, b, swapped, seed=seed) == bool(np.array_equal(swapped, c))


def test_low_precision_operands_are_read_by_value() -> None:
    a, b, c = product((3, 4, 5), 1)
    low = bits.np_dtype("bfloat16")
    assert verify_product(a.astype(low), b.astype(np.int8), c.astype(np.float32), seed=1)


def test_leading_axes_broadcast() -> None:
    a, b, _ = product((3, 4, 5), 1)
    stack = np.stack([b, -b])
    assert verify_product(a, stack, a @ stack, seed=0)


@pytest.mark.parametrize("unit", [0.0, -1.0, 3.0, np.inf, np.nan])
def test_a_unit_that_is_no_power_of_two_is_refused(unit: float) -> None:
    one = np.ones((1, 1))
    with pytest.raises(ValueError, match="unit must be"):
        verify_product(one, one, one, seed=0, unit=unit)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="shapes must be"):
        verify_product(np.ones((2, 3)), np.ones((3, 4)), np.ones((2, 3)), seed=0)
    with pytest.raises(ValueError, match="shapes must be"):
        verify_product(np.ones((2, 3)), np.ones((4, 4)), np.ones((2, 4)), seed=0)


def test_operands_that_are_no_integers_are_refused() -> None:
    with pytest.raises(ValueError, match="must hold integers"):
        verify_product(np.full((1, 1), 0.5), np.ones((1, 1)), np.ones((1, 1)), seed=0)


def test_operands_whose_product_may_wrap_are_refused() -> None:
    large = np.full((2, 2), 1 << 31)
    with pytest.raises(BoundError, match="2\\^63"):
        verify_product(large, large, large, seed=0)
