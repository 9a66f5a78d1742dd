# SPDX-License-Identifier: Apache-2.0
"""Number formats and the bits of arrays: views, flips, distances in representable values.

Dtypes are named as numpy and ml_dtypes name them. All functions take host arrays, except
`canonical_zero`, which takes the arrays of any array-API namespace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt

Host = npt.NDArray[Any]
Kind = Literal["float", "int", "uint", "bool"]

LARGEST_DISTANCE = (1 << 64) - 1
"""What `ulp_distance` gives where exactly one side is NaN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How one element type stores a number.

    Attributes:
        name: Name of the dtype.
        kind: `float`, `int`, `uint` or `bool`.
        bits: Stored width.
        significand_bits: Significand of a float with its hidden bit; value bits of an integer.
        min_exponent: Exponent e of the smallest normal float 2^e. Zero for integers.
        max_exponent: Exponent e of the largest finite float, in [2^e, 2^(e+1)). For integers, of
            the largest value.
        largest: Largest finite value.
        has_infinity: Whether it can store infinities.
    """

    name: str
    kind: Kind
    bits: int
    significand_bits: int
    min_exponent: int
    max_exponent: int
    largest: float
    has_infinity: bool = False

    @property
    def mantissa_bits(self) -> int:
        """Stored bits of the significand. Zero for integers."""
        return self.significand_bits - 1 if self.kind == "float" else 0

    @property
    def sign_mask(self) -> int:
        """The sign bit, or zero for formats without one."""
        return 1 << (self.bits - 1) if self.kind in ("float", "int") else 0

    @property
    def mantissa_mask(self) -> int:
        """The stored bits of the significand."""
        return (1 << self.mantissa_bits) - 1

    @property
    def exponent_mask(self) -> int:
        """The stored bits of the exponent. Zero for integers."""
        if self.kind != "float":
            return 0
        return ((1 << self.bits) - 1) & ~self.sign_mask & ~self.mantissa_mask


def _float(name: str, bits: int, p: int, exponents: tuple[int, int], largest: float) -> Format:
    return Format(
        name=name,
        kind="float",
        bits=bits,
        significand_bits=p,
        min_exponent=exponents[0],
        max_exponent=exponents[1],
        largest=largest,
        has_infinity=not name.endswith(("fn", "fnuz")),
    )


def _integer(kind: Literal["int", "uint"], bits: int) -> Format:
    value_bits = bits - (kind == "int")
    return Format(
        name=f"{kind}{bits}",
        kind=kind,
        bits=bits,
        significand_bits=value_bits,
        min_exponent=0,
        max_exponent=value_bits - 1,
        largest=(1 << value_bits) - 1,
    )


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        _float("float64", 64, 53, (-1022, 1023), float(np.finfo(np.float64).max)),
        _float("float32", 32, 24, (-126, 127), float(np.finfo(np.float32).max)),
        _float("float16", 16, 11, (-14, 15), 65504.0),
        _float("bfloat16", 16, 8, (-126, 127), float(2**128 - 2**120)),
        _float("float8_e4m3fn", 8, 4, (-6, 8), 448.0),
        _float("float8_e5m2", 8, 3, (-14, 15), 57344.0),
        _float("float8_e4m3fnuz", 8, 4, (-7, 7), 240.0),
        _float("float8_e5m2fnuz", 8, 3, (-15, 15), 57344.0),
        *(_integer("int", bits) for bits in (8, 16, 32, 64)),
        *(_integer("uint", bits) for bits in (8, 16, 32, 64)),
        Format(
            name="bool",
            kind="bool",
            bits=8,
            significand_bits=1,
            min_exponent=0,
            max_exponent=0,
            largest=1,
        ),
    )
}

_DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)
    for name in FORMATS
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def np_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of a format, from ml_dtypes where numpy has none.

    Raises:
        ValueError: No such format.
    """
    if name not in _DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(FORMATS)}, got {name!r}.")
    return _DTYPES[name]


def name_of(dtype: npt.DTypeLike) -> str:
    """The name of a numpy dtype in `FORMATS`. The inverse of `np_dtype`.

    Raises:
        ValueError: The dtype has no format here, or its bytes are not in native order.
    """
    found = _NAMES.get(np.dtype(dtype))
    if found is None:
        raise ValueError(
            f"dtype must be one of {', '.join(FORMATS)} in native byte order, got "
            f"{np.dtype(dtype).str!r}. Convert the array first."
        )
    return found


def as_uint(array: Host) -> Host:
    """The same memory as unsigned integers of the same width: same shape, any strides, 0-d too."""
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))


def flip_bit(array: Host, *, index: int | tuple[int, ...], bit: int) -> Host:
    """A copy in which one bit of one element is flipped.

    Args:
        array: Host array of a known format.
        index: Position in row-major order, or one index per axis.
        bit: Bit from the lowest. A bool has bit 0 only.

    Raises:
        ValueError: The format has no such bit.
        IndexError: The array has no such element.

    Guarantees: flipping twice gives the original bits; once changes exactly one element.
    """
    form = FORMATS[name_of(array.dtype)]
    width = 1 if form.kind == "bool" else form.bits
    if not 0 <= bit < width:
        raise ValueError(f"bit must lie in [0, {width}) for {form.name}, got {bit}.")
    copy = array.copy(order="C")
    flat = as_uint(copy).reshape(-1)
    position = index if isinstance(index, int) else np.arange(copy.size).reshape(copy.shape)[index]
    flat[position] ^= flat.dtype.type(1 << bit)
    return copy


def ulp_distance(actual: Host, expected: Host) -> npt.NDArray[np.uint64]:
    """How many representable values apart two arrays are, element by element.

    Integers and bools give the absolute difference. Of floats, infinity follows the largest
    finite value, two NaNs are 0 apart, and NaN on one side gives `LARGEST_DISTANCE`.

    Raises:
        ValueError: The dtypes differ or have no format.

    Guarantees: symmetric; zero for equal values, so for -0 and +0; one between neighbours.
    """
    name = name_of(actual.dtype)
    if name_of(expected.dtype) != name:
        raise ValueError(f"dtypes must be equal, got {name} and {name_of(expected.dtype)}.")
    form = FORMATS[name]
    bits_a, bits_e = (as_uint(side).astype(np.uint64) for side in (actual, expected))
    sign = np.uint64(form.sign_mask)
    if form.kind != "float":
        bits_a, bits_e = bits_a ^ sign, bits_e ^ sign
        return np.asarray(np.maximum(bits_a, bits_e) - np.minimum(bits_a, bits_e))
    size_a, size_e = bits_a & ~sign, bits_e & ~sign
    apart = np.maximum(size_a, size_e) - np.minimum(size_a, size_e)
    distance = np.where((bits_a ^ bits_e) & sign != 0, size_a + size_e, apart)
    nan_a, nan_e = np.isnan(actual), np.isnan(expected)
    distance = np.where(nan_a & nan_e, np.uint64(0), distance)
    return np.asarray(np.where(nan_a ^ nan_e, np.uint64(LARGEST_DISTANCE), distance))


def canonical_zero(xp: Any, x: Any) -> Any:
    """The array with -0 replaced by +0 and all else as it is. For any array-API namespace.

    Libraries differ in the sign of a zero sum. Apply this on the device before a digest or a
    comparison of results that are exact in value only.
    """
    return xp.where(x == 0, xp.zeros_like(x), x)
