# SPDX-License-Identifier: Apache-2.0
"""Floating-point values made and rounded by integer arithmetic alone.

Expected values must not come from the unit under test. Here a value is an int64 significand and an
exponent, and its bits are put together with shifts and masks: no floating-point unit takes part.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from truestep.errors import BoundError
from truestep.numerics.bits import FORMATS, np_dtype

Int64s = npt.NDArray[np.int64]


def bit_length(magnitude: Int64s) -> Int64s:
    """Bits needed for each non-negative int64; 0 for 0."""
    length = np.zeros_like(magnitude)
    rest = magnitude.copy()
    for step in (32, 16, 8, 4, 2, 1):
        is_long = rest >> step != 0
        length += np.where(is_long, step, 0)
        rest = np.where(is_long, rest >> step, rest)
    length += rest != 0
    return length


def round_half_even(magnitude: Int64s, shift: Int64s) -> Int64s:
    """`magnitude / 2^shift` rounded to nearest, ties to even; `shift` in 0..62."""
    quotient = magnitude >> shift
    rest = magnitude - (quotient << shift)
    half = (np.int64(1) << shift) >> 1
    is_up = (rest > half) | ((rest == half) & (quotient & 1 == 1) & (shift > 0))
    quotient += is_up
    return quotient


def encode(significand: Int64s, exponent: Int64s | int, *, dtype: str) -> npt.NDArray[Any]:
    """`significand * 2^exponent` in a floating dtype, rounded to nearest even.

    Args:
        significand: Signed int64, magnitude below 2^62, any shape.
        exponent: Broadcastable to it.
        dtype: Name of a floating format.

    Raises:
        BoundError: A non-zero result is subnormal or not finite.

    Guarantees:
        Equal to the correctly rounded value; zero is +0; integer arithmetic only.
    """
    fmt = FORMATS[dtype]
    significand = np.asarray(significand, dtype=np.int64)
    exponent = np.broadcast_to(np.asarray(exponent, dtype=np.int64), significand.shape)
    magnitude = np.abs(significand)
    excess = bit_length(magnitude) - fmt.significand_bits
    kept = round_half_even(magnitude, np.maximum(excess, 0)) << np.maximum(-excess, 0)
    is_carry = kept >> fmt.significand_bits != 0
    kept = np.where(is_carry, kept >> 1, kept)
    top = exponent + excess + is_carry + fmt.significand_bits - 1
    is_zero = magnitude == 0
    _require_normal(top, is_zero, dtype)
    mantissa_bits = fmt.significand_bits - 1
    biased = np.where(is_zero, 0, top - fmt.min_exponent + 1)
    mantissa = np.where(is_zero, 0, kept & ((1 << mantissa_bits) - 1))
    sign = (significand < 0).astype(np.int64)
    bits = (sign << (fmt.bits - 1)) | (biased << mantissa_bits) | mantissa
    return bits.astype(f"uint{fmt.bits}").view(np_dtype(dtype))


def _require_normal(top: Int64s, is_zero: npt.NDArray[np.bool_], dtype: str) -> None:
    fmt = FORMATS[dtype]
    # The largest binade of e4m3fn lacks its last value; the binade below is always whole.
    highest = fmt.max_exponent - (1 if dtype == "float8_e4m3fn" else 0)
    is_bad = ~is_zero & ((top < fmt.min_exponent) | (top > highest))
    if is_bad.any():
        raise BoundError(
            f"every non-zero result must be normal and finite in {dtype}, got exponents "
            f"{int(top[is_bad].min())}..{int(top[is_bad].max())}. Use smaller scales."
        )
