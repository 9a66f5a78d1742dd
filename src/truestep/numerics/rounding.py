# SPDX-License-Identifier: Apache-2.0
"""Floating-point values made and rounded by integer arithmetic alone.

Expected values must not come from the unit under test. Here a value is an int64 significand and an
exponent, and its bits are put together with shifts and masks: no floating-point unit takes part.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from truestep.errors import BoundError
from truestep.numerics.bits import FORMATS, Format, np_dtype

Int64s = npt.NDArray[np.int64]


BLOCK = 1 << 15
"""Elements worked on at a time, so that what lies between two steps stays in the cache."""


def _lengths() -> npt.NDArray[np.int64]:
    """Bits needed for each 16-bit word."""
    lengths = np.zeros(1 << 16, dtype=np.int64)
    for bit in range(16):
        lengths[1 << bit :] = bit + 1
    return lengths


LENGTHS = _lengths()


def bit_length(magnitude: Int64s) -> Int64s:
    """Bits needed for each non-negative int64; 0 for 0."""
    length: Int64s = LENGTHS[magnitude & 0xFFFF]
    for low in (16, 32, 48):
        part = magnitude >> low
        if not part.any():
            break
        length = np.where(part != 0, LENGTHS[part & 0xFFFF] + low, length)
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
    significand = np.asarray(significand, dtype=np.int64)
    rows = np.atleast_1d(significand)
    exponents = np.broadcast_to(np.asarray(exponent, dtype=np.int64), rows.shape)
    bits = np.empty(rows.shape, dtype=f"uint{FORMATS[dtype].bits}")
    step = max(1, BLOCK * len(rows) // max(1, rows.size))
    for first in range(0, len(rows), step):
        block = slice(first, first + step)
        bits[block] = _encode_block(rows[block], exponents[block], FORMATS[dtype])
    return bits.reshape(significand.shape).view(np_dtype(dtype))


def _encode_block(significand: Int64s, exponent: Int64s, fmt: Format) -> Int64s:
    magnitude = np.abs(significand)
    excess = bit_length(magnitude) - fmt.significand_bits
    is_long = excess.max(initial=0) > 0
    kept = round_half_even(magnitude, np.maximum(excess, 0)) if is_long else magnitude
    kept = kept << np.maximum(-excess, 0)
    smallest = 1 << fmt.mantissa_bits
    # The hidden bit of `kept`, and a carry out of its rounding, are added to the exponent.
    below: Int64s = exponent + excess + (fmt.mantissa_bits - fmt.min_exponent)
    np.clip(below, -2, fmt.max_exponent - fmt.min_exponent + 1, out=below)
    bits: Int64s = (below << fmt.mantissa_bits) + kept
    bits[magnitude == 0] = smallest
    if bits.min(initial=smallest) < smallest or bits.max(initial=smallest) > _largest(fmt):
        raise BoundError(
            f"every non-zero result must be normal and finite in {fmt.name}, got exponents up to "
            f"{int(exponent.max())} on {int(magnitude.max())}. Use other scales."
        )
    bits[magnitude == 0] = 0
    signs: Int64s = (significand < 0).astype(np.int64) << (fmt.bits - 1)
    return bits | signs


def _largest(fmt: Format) -> int:
    """The bits of the largest finite value."""
    significand = int(math.ldexp(fmt.largest, fmt.mantissa_bits - fmt.max_exponent))
    return ((fmt.max_exponent - fmt.min_exponent) << fmt.mantissa_bits) + significand
