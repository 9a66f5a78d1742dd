# SPDX-License-Identifier: Apache-2.0
"""The one comparison: how `actual` differs from `expected`, bit for bit.

Bits decide, not values: -0 differs from +0 unless the caller applied `bits.canonical_zero` to both
sides, and a NaN equals a NaN of the same bits only. Equal tensors cost one pass; all else is
computed only where something differs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from truestep.numerics import bits
from truestep.observation import Change, Miscompare, Spread

Host = npt.NDArray[Any]
Box = tuple[tuple[int, int], ...]

MOST_POSITIONS = 64
"""How many positions a `Miscompare` lists."""

SOLID_COUNT = 8
"""From this many differences on, a region may have elements that agree by chance, up to half."""


def compare(actual: Host, expected: Host) -> Miscompare | None:
    """How `actual` differs from `expected`, or None where every bit is equal.

    Args:
        actual: Host array of a format in `bits`, any shape and strides.
        expected: Host array of the same dtype and shape.

    Raises:
        ValueError: The dtypes or shapes differ, or the dtype has no format: a mistake in the call.

    Guarantees: None exactly for equal bits; positions, masks and box describe all differences;
    non-finite values are differences like any other and raise nothing.
    """
    name = bits.name_of(actual.dtype)
    if bits.name_of(expected.dtype) != name or actual.shape != expected.shape:
        raise ValueError(
            "actual and expected must have one dtype and one shape, got "
            f"{actual.dtype}{list(actual.shape)} and {expected.dtype}{list(expected.shape)}. "
            "Cast or reshape before comparing."
        )
    bits_a, bits_e = bits.as_uint(actual), bits.as_uint(expected)
    if np.array_equal(bits_a, bits_e):
        return None
    positions = np.flatnonzero(bits_a != bits_e)
    return _describe(
        bits.FORMATS[name],
        bits_a.reshape(-1)[positions],
        bits_e.reshape(-1)[positions],
        positions=positions,
        shape=actual.shape,
    )


def _describe(
    form: bits.Format,
    bits_a: Host,
    bits_e: Host,
    *,
    positions: npt.NDArray[np.intp],
    shape: tuple[int, ...],
) -> Miscompare:
    """The miscompare of elements that all differ, given as bits with their flat positions."""
    xor = bits_a ^ bits_e
    axes = np.unravel_index(positions, shape) if shape else ()
    box = tuple((int(axis.min()), int(axis.max()) + 1) for axis in axes)
    dtype = bits.np_dtype(form.name)
    actual, expected = bits_a.view(dtype), bits_e.view(dtype)
    digits = form.bits // 4
    return Miscompare(
        dtype=form.name,
        shape=tuple(int(n) for n in shape),
        count=positions.size,
        first=tuple(int(axis[0]) for axis in axes),
        box=box,
        spread=spread_of(positions, box=box, shape=shape),
        change=change_of(form, actual, expected),
        xor_mask=int(np.bitwise_or.reduce(xor)),
        xor_common=int(np.bitwise_and.reduce(xor)),
        positions=tuple(positions[:MOST_POSITIONS].tolist()),
        actual=f"0x{int(bits_a[0]):0{digits}x}",
        expected=f"0x{int(bits_e[0]):0{digits}x}",
        max_ulp=_max_ulp(actual, expected),
        max_relative=_max_relative(actual, expected),
    )


def spread_of(positions: npt.NDArray[np.intp], *, box: Box, shape: tuple[int, ...]) -> Spread:
    """How differing positions lie.

    Args:
        positions: Flat positions in row-major order, sorted, at least one.
        box: Smallest box that holds them.
        shape: Shape of the tensor.

    A row runs along the last axis and a column along the one before, each from end to end. A tile
    is any other solid box of more than one axis. A stride is three or more positions a constant
    step apart.
    """
    count, size = positions.size, int(np.prod(shape, dtype=np.int64))
    if count == 1:
        return Spread.SINGLE
    if count == size:
        return Spread.WHOLE
    extents = [stop - start for start, stop in box]
    is_full = [extent == n for extent, n in zip(extents, shape, strict=True)]
    wide = [axis - len(shape) for axis, extent in enumerate(extents) if extent > 1]
    volume = int(np.prod(extents, dtype=np.int64))
    steps = np.diff(positions)
    step = int(steps[0]) if bool((steps == steps[0]).all()) else 0
    if count == volume or (step < 2 and count >= SOLID_COUNT and 2 * count >= volume):
        solid = _solid_spread(wide, is_full, count=count, step=step)
        if solid is not None:
            return solid
    if step == 1:
        return Spread.RUN
    return Spread.STRIDE if step and count > 2 else Spread.SCATTERED


def _solid_spread(wide: list[int], is_full: list[bool], *, count: int, step: int) -> Spread | None:
    """The name of a solid box that is longer than one along the axes `wide` (from the end)."""
    if all(is_full):
        return Spread.WHOLE
    if wide == [-1]:
        return Spread.ROW if is_full[-1] and len(is_full) > 1 else Spread.RUN
    if wide == [-2] and is_full[-2]:
        return Spread.COLUMN
    is_line = len(wide) == 1 and step > 1 and count > 2
    return None if is_line else Spread.TILE


def change_of(form: bits.Format, actual: Host, expected: Host) -> Change:
    """What was done to differing elements; `MIXED` where it is not one thing.

    Mantissa means some bit of the significand, low mantissa only bits of its lower half. An
    exponent may take the mantissa with it, a sign stands alone.
    """
    if bool(((actual == 0) & (expected != 0)).all()):
        return Change.NULLIFIED
    if form.kind != "float":
        return Change.INTEGER
    finite = np.isfinite(actual) & np.isfinite(expected)
    if not finite.all():
        return Change.MIXED if finite.any() else Change.NON_FINITE
    xor = bits.as_uint(actual) ^ bits.as_uint(expected)
    masks = (form.sign_mask, form.exponent_mask, form.mantissa_mask)
    sign, exponent, mantissa = ((xor & xor.dtype.type(mask)) != 0 for mask in masks)
    if sign.any():
        return Change.SIGN if not (~sign | exponent | mantissa).any() else Change.MIXED
    if exponent.any():
        return Change.EXPONENT if exponent.all() else Change.MIXED
    low = (1 << (form.mantissa_bits // 2)) - 1
    return (
        Change.MANTISSA
        if (xor & xor.dtype.type(~low & form.mantissa_mask)).any()
        else (Change.LOW_MANTISSA)
    )


def _max_ulp(actual: Host, expected: Host) -> int | None:
    if not (np.isfinite(actual).all() and np.isfinite(expected).all()):
        return None
    return int(bits.ulp_distance(actual, expected).max())


def _max_relative(actual: Host, expected: Host) -> float | None:
    """Largest |actual - expected| / |expected| in float64, where that is finite; else None."""
    is_float = bits.FORMATS[bits.name_of(actual.dtype)].kind == "float"
    with np.errstate(all="ignore"):
        scale = np.abs(expected.astype(np.float64))
        if is_float:
            apart = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
        else:
            apart = bits.ulp_distance(actual, expected).astype(np.float64)
        relative = apart / scale
    relative = relative[np.isfinite(relative)]
    return float(relative.max()) if relative.size else None
