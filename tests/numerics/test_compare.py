# SPDX-License-Identifier: Apache-2.0
"""What a comparison tells of a difference."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truestep.numerics import bits
from truestep.numerics.compare import MOST_POSITIONS, compare
from truestep.observation import Change, Miscompare, Spread

NAMES = sorted(bits.FORMATS)


def differing(shape: tuple[int, ...], where: object) -> Miscompare:
    expected = np.ones(shape, np.float32)
    actual = expected.copy()
    actual[where] = 3.0
    found = compare(actual, expected)
    assert found is not None
    return found


@st.composite
def pairs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays of any number format and any bits that differ in a few of them."""
    name = draw(st.sampled_from([n for n in NAMES if n != "bool"]))
    shape = draw(st.sampled_from([(), (1,), (12,), (3, 4), (2, 3, 2), (0, 4)]))
    dtype, size = bits.np_dtype(name), int(np.prod(shape))
    raw = draw(st.binary(min_size=size * dtype.itemsize, max_size=size * dtype.itemsize))
    expected = np.frombuffer(raw, dtype).reshape(shape)
    actual = expected
    for _ in range(draw(st.integers(0, 4)) if size else 0):
        index = draw(st.integers(0, size - 1))
        bit = draw(st.integers(0, dtype.itemsize * 8 - 1))
        actual = bits.flip_bit(actual, index=index, bit=bit)
    return actual, expected


@given(pairs())
def test_every_field_describes_all_differences(pair: tuple[np.ndarray, np.ndarray]) -> None:
    actual, expected = pair
    xor = (bits.as_uint(actual) ^ bits.as_uint(expected)).reshape(-1)
    where = np.flatnonzero(xor)
    found = compare(actual, expected)
    if not where.size:
        assert found is None
        return
    assert found is not None
    assert found.positions == tuple(where.tolist())
    assert found.count == where.size
    assert found.shape == actual.shape
    assert found.xor_mask == int(np.bitwise_or.reduce(xor[where]))
    assert found.xor_common == int(np.bitwise_and.reduce(xor[where]))
    assert int(found.actual, 16) ^ int(found.expected, 16) == int(xor[where[0]])
    assert len(found.actual) == 2 + 2 * actual.dtype.itemsize
    indices = [np.unravel_index(j, actual.shape) for j in where.tolist()]
    assert found.first == tuple(int(i) for i in indices[0])
    for axis, (start, stop) in enumerate(found.box):
        assert start == min(i[axis] for i in indices)
        assert stop == 1 + max(i[axis] for i in indices)


@given(pairs())
def test_swapping_the_sides_keeps_the_pattern(pair: tuple[np.ndarray, np.ndarray]) -> None:
    one, two = compare(*pair), compare(*reversed(pair))
    assert (one is None) == (two is None)
    if one is not None and two is not None:
        assert (one.spread, one.xor_mask, one.max_ulp) == (two.spread, two.xor_mask, two.max_ulp)
        assert (one.actual, one.expected) == (two.expected, two.actual)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3)])
def test_equal_bits_are_no_miscompare(name: str, shape: tuple[int, ...]) -> None:
    array = np.ones(shape, bits.np_dtype(name))
    assert compare(array, array.copy()) is None


@pytest.mark.parametrize("bad", [np.zeros(3, np.float32), np.zeros((3, 1)), np.zeros(3, ">f8")])
def test_another_dtype_or_shape_is_a_mistake_in_the_call(bad: np.ndarray) -> None:
    with pytest.raises(ValueError, match="dtype"):
        compare(np.zeros(3), bad)


def test_strides_do_not_matter() -> None:
    base = np.arange(24, dtype=np.int16).reshape(4, 6)
    changed = base.copy()
    changed[1, 2] ^= 1
    found = compare(changed.T[::2], base.T[::2])
    assert found is not None
    assert found.first == (1, 1)


@pytest.mark.parametrize(
    ("shape", "where", "spread"),
    [
        ((), (), Spread.SINGLE),
        ((4, 4), (2, 2), Spread.SINGLE),
        ((16,), slice(3, 6), Spread.RUN),
        ((8, 16), (3, slice(2, 7)), Spread.RUN),
        ((8, 16), (3, slice(0, 15)), Spread.RUN),
        ((8, 16), (3, [0, 1]), Spread.RUN),
        ((4, 8), ([0, 0, 1, 1], [6, 7, 0, 1]), Spread.RUN),
        ((8, 16), 3, Spread.ROW),
        ((2, 8, 16), (1, 3), Spread.ROW),
        ((8, 16), (slice(None), 5), Spread.COLUMN),
        ((2, 8, 16), (1, slice(None), 5), Spread.COLUMN),
        ((2, 16), (slice(None), 5), Spread.COLUMN),
        ((8, 16), (slice(2, 4), slice(4, 8)), Spread.TILE),
        ((8, 16), (slice(2, 4), slice(None)), Spread.TILE),
        ((8, 16), (slice(2, 4), 3), Spread.TILE),
        ((2, 8, 16), (slice(None), slice(2, 4), slice(4, 8)), Spread.TILE),
        ((64,), slice(3, 60, 4), Spread.STRIDE),
        ((64,), slice(0, 64, 2), Spread.STRIDE),
        ((8, 16), (slice(2, 6), 5), Spread.STRIDE),
        ((8, 16), (slice(None), slice(0, 16, 8)), Spread.STRIDE),
        ((9,), slice(None), Spread.WHOLE),
        ((4, 4), slice(None), Spread.WHOLE),
        ((1, 9), 0, Spread.WHOLE),
        ((64,), [3, 4, 17, 40], Spread.SCATTERED),
        ((64,), [3, 40], Spread.SCATTERED),
        ((64,), [3, 5], Spread.SCATTERED),
        ((8, 16), ([1, 5], [3, 9]), Spread.SCATTERED),
    ],
)
def test_spread(shape: tuple[int, ...], where: object, spread: Spread) -> None:
    assert differing(shape, where).spread is spread


@pytest.mark.parametrize(
    ("where", "spread"),
    [
        (np.s_[:], Spread.WHOLE),
        (np.s_[3], Spread.ROW),
        (np.s_[:, 5], Spread.COLUMN),
        (np.s_[4:12, 16:24], Spread.TILE),
    ],
)
def test_elements_that_agree_by_chance_do_not_hide_a_region(where: object, spread: Spread) -> None:
    rng = np.random.default_rng(0)
    mask = np.zeros((32, 64), bool)
    mask[where] = rng.random(mask[where].shape) < 0.85
    mask.reshape(32, 64)[where].flat[[0, -1]] = True
    region = np.zeros_like(mask)
    region[where] = True
    corners = np.flatnonzero(region)[[0, -1]]
    mask.reshape(-1)[corners] = True
    assert differing(mask.shape, mask).spread is spread


@pytest.mark.parametrize("name", [n for n in NAMES if bits.FORMATS[n].kind == "float"])
def test_change_of_one_bit(name: str) -> None:
    form = bits.FORMATS[name]
    low = form.mantissa_bits // 2
    array = np.array([1.25, 1.5], np.float32).astype(bits.np_dtype(name))
    for bit in range(form.bits):
        found = compare(bits.flip_bit(array, index=0, bit=bit), array)
        assert found is not None
        if bit < low:
            wanted = Change.LOW_MANTISSA
        elif bit < form.mantissa_bits:
            wanted = Change.MANTISSA
        elif bit < form.bits - 1:
            is_finite = np.isfinite(bits.flip_bit(array, index=0, bit=bit)[0])
            wanted = Change.EXPONENT if is_finite else Change.NON_FINITE
        else:
            wanted = Change.SIGN
        assert found.change is wanted, bit
        assert found.bits == (bit,)


@pytest.mark.parametrize(
    ("actual", "expected", "change"),
    [
        ([0.0, -0.0], [1.0, -2.0], Change.NULLIFIED),
        ([0.0, 5.0], [1.0, 4.0], Change.MIXED),
        ([0.0], [-0.0], Change.SIGN),
        ([-1.0, 2.0], [1.0, -2.0], Change.SIGN),
        ([-1.5], [1.0], Change.MIXED),
        ([np.inf, np.nan], [1.0, 2.0], Change.NON_FINITE),
        ([np.inf, 1.5], [1.0, 2.0], Change.MIXED),
        ([1.0], [np.nan], Change.NON_FINITE),
        ([4.5, 9.0], [1.0, 2.0], Change.EXPONENT),
        ([2.0, 1.5], [1.0, 1.0], Change.MIXED),
        ([1.5, np.nextafter(1.0, 2.0)], [1.0, 1.0], Change.MANTISSA),
    ],
)
def test_change_of_several(actual: list[float], expected: list[float], change: Change) -> None:
    found = compare(np.array(actual), np.array(expected))
    assert found is not None
    assert found.change is change


def test_integers_and_bools_have_integer_changes() -> None:
    for dtype in (np.int8, np.uint64, bool):
        found = compare(np.array([1, 1], dtype), np.array([0, 1], dtype))
        assert found is not None
        assert found.change is Change.INTEGER
        assert found.max_ulp == 1
        assert found.max_relative is None
    nullified = compare(np.array([0], np.int8), np.array([7], np.int8))
    assert nullified is not None
    assert nullified.change is Change.NULLIFIED
    assert nullified.max_relative == 1.0


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_a_miscompare_without_a_distance(
    dtype: type, value: float
) -> None:
    found = compare(np.array([value, 2], dtype), np.array([1, 2], dtype))
    assert found is not None
    assert found.max_ulp is None
    assert found.max_relative is None


def test_nans_are_compared_by_their_bits() -> None:
    nan = np.array([np.nan], np.float32)
    assert compare(nan, nan.copy()) is None
    assert compare(bits.flip_bit(nan, index=0, bit=0), nan) is not None


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
@pytest.mark.parametrize("is_expected", [False, True])
def test_a_signalling_nan_on_either_side_raises_nothing(dtype: str, is_expected: bool) -> None:
    form = bits.FORMATS[dtype]
    one = np.ones(2, bits.np_dtype(dtype))
    words = bits.as_uint(one).copy()
    words[0] = form.exponent_mask | 1
    pair = (words.view(one.dtype), one)
    found = compare(*(reversed(pair) if is_expected else pair))
    assert found is not None
    assert found.change is Change.NON_FINITE


def test_signed_zeros_differ_until_they_are_made_canonical() -> None:
    minus, plus = np.array([-0.0]), np.array([0.0])
    found = compare(minus, plus)
    assert found is not None
    assert found.max_ulp == 0
    assert compare(bits.canonical_zero(np, minus), bits.canonical_zero(np, plus)) is None


def test_the_errors_are_the_largest_ones() -> None:
    found = compare(np.array([1.5, 3.0, 7.0]), np.array([1.0, 4.0, 7.0]))
    assert found is not None
    assert found.max_relative == 0.5
    assert found.max_ulp == 1 << 51


def test_extreme_values_raise_no_warning() -> None:
    most = np.finfo(np.float64).max
    found = compare(np.array([-most, 1.0]), np.array([most, 5e-324]))
    assert found is not None
    assert found.max_relative is None or np.isfinite(found.max_relative)


def test_positions_are_listed_up_to_a_limit() -> None:
    found = differing((40, 40), slice(None))
    assert found.count == 1600
    assert found.positions == tuple(range(MOST_POSITIONS))


@pytest.mark.parametrize("call", [lambda x: x, np.asfortranarray, lambda x: x[::-1][::-1]])
def test_layout_of_memory_is_not_part_of_the_comparison(
    call: Callable[[np.ndarray], np.ndarray],
) -> None:
    base = np.random.default_rng(0).standard_normal((5, 7))
    assert compare(call(base), base) is None
