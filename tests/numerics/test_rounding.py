# SPDX-License-Identifier: Apache-2.0
"""Rounding by integers, held to rational arithmetic and to the casts of numpy and ml_dtypes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truestep.errors import BoundError
from truestep.numerics.bits import FORMATS, as_uint, np_dtype
from truestep.numerics.rounding import bit_length, encode, round_half_even

FLOATS = [name for name, form in FORMATS.items() if form.kind == "float"]
MAGNITUDES = st.integers(0, (1 << 62) - 1) | st.integers(0, 62).flatmap(
    # Close to a power of two, where a carry lengthens the significand.
    lambda n: st.integers(max(0, (1 << n) - 3), min((1 << n) + 3, (1 << 62) - 1))
)


def rounded(value: Fraction, dtype: str) -> Fraction | None:
    """The nearest value of a format, ties to even; None where it is subnormal or not finite."""
    form = FORMATS[dtype]
    if value == 0:
        return Fraction(0)
    top = 0
    while abs(value) >= Fraction(2) ** (top + 1):
        top += 1
    while abs(value) < Fraction(2) ** top:
        top -= 1
    unit = Fraction(2) ** (top - form.significand_bits + 1)
    found = round(value / unit) * unit  # Python rounds ties to even.
    is_known = Fraction(2) ** form.min_exponent <= abs(found) <= Fraction(form.largest)
    return found if is_known else None


@pytest.mark.parametrize("dtype", FLOATS)
@given(MAGNITUDES, st.booleans(), st.integers(-30, 30), st.data())
def test_encode_gives_the_correctly_rounded_value(
    dtype: str, magnitude: int, is_negative: bool, offset: int, data: st.DataObject
) -> None:
    significand = -magnitude if is_negative else magnitude
    form = FORMATS[dtype]
    # Results on both sides of the range of normal values, and within it.
    top = data.draw(st.sampled_from([form.min_exponent, 0, form.max_exponent])) + offset % 5 - 2
    exponent = top - magnitude.bit_length() + 1
    expected = rounded(significand * Fraction(2) ** exponent, dtype)
    if expected is None:
        with pytest.raises(BoundError, match="must be normal and finite"):
            encode(np.array([significand]), exponent, dtype=dtype)
        return
    found = encode(np.array([significand]), exponent, dtype=dtype)
    assert found.dtype == np_dtype(dtype)
    assert Fraction(float(found[0])) == expected
    assert bool(np.signbit(found[0])) == (expected < 0)


@pytest.mark.parametrize("dtype", [name for name in FLOATS if name != "float64"])
@given(st.lists(st.integers(-(1 << 24), 1 << 24), min_size=1, max_size=30))
def test_encode_agrees_with_a_cast(dtype: str, significands: list[int]) -> None:
    form = FORMATS[dtype]
    exponent = form.max_exponent - 26 if form.bits == 8 else -14
    values = np.array(significands)
    cast = np.ldexp(values.astype(np.float32), exponent)
    normal = np.abs(cast) >= 2.0**form.min_exponent
    found = encode(values[normal], exponent, dtype=dtype)
    assert np.array_equal(as_uint(found), as_uint(cast[normal].astype(found.dtype)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_ties_go_to_even(dtype: str) -> None:
    one = 1 << FORMATS[dtype].significand_bits
    # Halfway above an even and above an odd significand, and a little to either side.
    found = encode(
        np.array([one + 1, one + 3, 4 * one + 5, 4 * one + 3]),
        np.array([0, 0, -2, -2]) - FORMATS[dtype].significand_bits,
        dtype=dtype,
    )
    unit = 2.0 ** (1 - FORMATS[dtype].significand_bits)
    assert found.astype(float).tolist() == [1.0, 1 + 2 * unit, 1 + unit, 1.0]


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_largest_value_is_the_last_that_is_known(dtype: str) -> None:
    form = FORMATS[dtype]
    step = form.max_exponent - form.significand_bits + 1
    largest = int(Fraction(form.largest) / Fraction(2) ** step)
    assert float(encode(np.array([largest]), step, dtype=dtype)[0]) == form.largest
    assert float(encode(np.array([-largest]), step, dtype=dtype)[0]) == -form.largest
    with pytest.raises(BoundError):
        encode(np.array([largest + 1]), step, dtype=dtype)
    with pytest.raises(BoundError):
        encode(np.array([4 * largest + 3]), step - 2, dtype=dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_smallest_normal_value_is_the_first_that_is_known(dtype: str) -> None:
    form = FORMATS[dtype]
    found = encode(np.array([1]), form.min_exponent, dtype=dtype)
    assert Fraction(float(found[0])) == Fraction(2) ** form.min_exponent
    with pytest.raises(BoundError):
        encode(np.array([1]), form.min_exponent - 1, dtype=dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_zero_is_plus_zero_whatever_its_exponent(dtype: str) -> None:
    found = encode(np.zeros(3, np.int64), np.array([-5000, 0, 5000]), dtype=dtype)
    assert as_uint(found).tolist() == [0, 0, 0]


def test_exponents_are_broadcast() -> None:
    found = encode(np.array([[1, 2], [3, -4]]), np.array([[0], [1]]), dtype="float32")
    assert found.tolist() == [[1.0, 2.0], [6.0, -8.0]]
    assert encode(np.zeros((0, 3), np.int64), 0, dtype="bfloat16").shape == (0, 3)


@given(MAGNITUDES)
def test_bit_length_is_that_of_python(magnitude: int) -> None:
    assert int(bit_length(np.array([magnitude]))[0]) == magnitude.bit_length()


@given(MAGNITUDES, st.integers(0, 62))
def test_rounding_is_that_of_rational_numbers(magnitude: int, shift: int) -> None:
    found = int(round_half_even(np.array([magnitude]), np.array([shift]))[0])
    assert found == round(Fraction(magnitude, 1 << shift))
