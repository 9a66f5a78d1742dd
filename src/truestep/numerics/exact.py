# SPDX-License-Identifier: Apache-2.0
"""Matrix products whose result is known bit for bit, with the proof that it is.

Operands are integers stored in floating point, scaled by powers of two on the rows of A and the
columns of B (never along K). If the sum of |a||b| over any output stays below the limit of the
accumulator, every partial sum in every order is an exact integer, and every correct device,
library, thread count and summation order gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from truestep.errors import BoundError, ConfigError
from truestep.numerics.bits import FORMATS, np_dtype
from truestep.numerics.checksum import verify_product
from truestep.numerics.inputs import Distribution, random_integers, random_words
from truestep.numerics.mixing import derive, shift_right
from truestep.numerics.rounding import encode

Int64s = npt.NDArray[np.int64]
Host = npt.NDArray[Any]
Multiply = Callable[[Host, Host], Host]

SMALL_PRODUCT = 1 << 18
"""Multiplications up to which integers compute a product at once."""


class ValueClass(StrEnum):
    """Why a product is known."""

    ACCUMULATOR_EXACT = "accumulator_exact"
    OUTPUT_EXACT = "output_exact"
    PERMUTATION = "permutation"


@dataclass(frozen=True, slots=True)
class Precision:
    """How a product is computed.

    Attributes:
        name: `fp32`, `tf32`, `bf16`, ...
        operand: Dtype in which operands are stored.
        natural_output: Dtype that production kernels give.
        operand_bits: Significand bits that the multiplier reads.
        accumulator_limit: Sums of |a||b| strictly below this are exact in the accumulator.
        largest_output: Outputs stay below this before scaling, so that they are finite.
        max_scale: Exponent of the largest power of two on rows and columns; 0 for none.
    """

    name: str
    operand: str
    natural_output: str
    operand_bits: int
    accumulator_limit: int
    largest_output: int
    max_scale: int


PRECISIONS = {
    p.name: p
    for p in (
        Precision("fp64", "float64", "float64", 53, 1 << 53, 1 << 53, 100),
        Precision("fp32", "float32", "float32", 24, 1 << 24, 1 << 24, 20),
        Precision("tf32", "float32", "float32", 11, 1 << 24, 1 << 24, 20),
        Precision("bf16", "bfloat16", "bfloat16", 8, 1 << 24, 1 << 24, 20),
        Precision("fp16", "float16", "float16", 11, 1 << 24, 1 << 15, 3),
        Precision("fp8", "float8_e4m3fn", "float8_e4m3fn", 4, 1 << 13, 1 << 8, 0),
        Precision("int8", "int8", "int32", 7, 1 << 31, 1 << 31, 0),
    )
}
"""Every precision of a product. Source: docs/decisions/003-exact-products.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Operands and the one result that a correct device must give.

    Attributes:
        a, b: Operands, shapes (..., M, K) and (..., K, N).
        expected: Result in the dtype `out`, shape (..., M, N). Zeros are +0.
        value_class: Why it is known.
        coverage: Shape, amplitudes and scales in words.
    """

    a: Host
    b: Host
    expected: Host
    value_class: ValueClass
    coverage: str


def sum_limit(precision: Precision, *, out: str, value_class: ValueClass) -> int:
    """The largest sum of |a||b| that keeps every output known.

    Output-exact sums are integers that the output format itself holds, so the result survives
    split-K, stochastic rounding and excess precision: 2^8 for bf16, 2^11 for fp16.
    """
    strict = min(precision.accumulator_limit, precision.largest_output) - 1
    fmt = FORMATS[out]
    if value_class is ValueClass.OUTPUT_EXACT and fmt.kind == "float":
        return min(strict, 1 << fmt.significand_bits)
    return strict


@dataclass(frozen=True, slots=True, kw_only=True)
class Amplitudes:
    """Bounds on |a| and |b|, and the spacing of the non-zero entries of a row of A."""

    a: int
    b: int
    period: int


def plan_amplitudes(k: int, limit: int, *, operand_bits: int, skew: int = 0) -> Amplitudes:
    """Amplitudes with `ceil(k / period) * a * b <= limit`, as large as the format allows.

    Args:
        k: Length of the sums, at least 1.
        limit: From `sum_limit`.
        operand_bits: Significand bits of the operands.
        skew: Powers of two moved from b to a, to exercise wide significands on one side.
    """
    if k < 1 or limit < 1:
        raise ConfigError(f"k and limit must be at least 1, got k={k!r}, limit={limit!r}.")
    most = (1 << min(operand_bits, 30)) - 1
    room = max(limit // k, 1)
    a = max(1, min(most, room, math.isqrt(room) << skew))
    b = max(1, min(most, room // a))
    num_terms = limit // (a * b)
    return Amplitudes(a=a, b=b, period=-(-k // num_terms))


def prove(a: Int64s, b: Int64s, limit: int) -> int:
    """An upper bound on the sum of |a||b| over any output, shown not to exceed `limit`.

    O(n^2): the largest row sum of |a| times the largest |b|.

    Raises:
        BoundError: The bound exceeds the limit; the result would not be known.
    """
    rows = np.abs(a).sum(axis=-1).max(initial=0)
    bound = int(rows) * int(np.abs(b).max(initial=0))
    if bound > limit:
        raise BoundError(
            f"the sum of |a||b| must not exceed {limit}, got up to {bound}. Use smaller amplitudes."
        )
    return bound


def integer_product(
    shape: tuple[int, ...],
    *,
    precision: Precision,
    out: str,
    value_class: ValueClass,
    seed: int,
    distribution: Distribution = Distribution.UNIFORM,
) -> Product:
    """A seeded product of scaled integers with its proven result.

    Args:
        shape: (..., M, K, N).
        precision: How it will be computed.
        out: Dtype of the result.
        value_class: `ACCUMULATOR_EXACT` (rounded once into `out`) or `OUTPUT_EXACT`.
        seed: Any integer.
        distribution: How the integers are spread.

    Raises:
        BoundError: The proof fails. That is a mistake in the plan, not evidence.

    Guarantees:
        The bits depend on the arguments alone; every partial sum in any order is exact.
    """
    *batch, m, k, n = shape
    limit = sum_limit(precision, out=out, value_class=value_class)
    skew = derive(seed, 0) % 4
    plan = plan_amplitudes(k, limit, operand_bits=precision.operand_bits, skew=skew)
    a = random_integers(
        (*batch, m, k), seed=derive(seed, 1), amplitude=plan.a, distribution=distribution
    )
    if plan.period > 1:
        a *= (np.arange(k)[None, :] + np.arange(m)[:, None]) % plan.period == 0
    b = random_integers(
        (*batch, k, n), seed=derive(seed, 2), amplitude=plan.b, distribution=distribution
    )
    bound = prove(a, b, limit)
    rows, columns = _scales(seed, m, n, precision.max_scale)
    sums = exact_sums(a, b, seed=seed, bound=bound)
    return Product(
        a=_stored(a, rows[:, None], precision.operand),
        b=_stored(b, columns[None, :], precision.operand),
        expected=_stored(sums, rows[:, None] + columns[None, :], out),
        value_class=value_class,
        coverage=f"{'x'.join(map(str, shape))} |a|<={plan.a} |b|<={plan.b} {distribution}",
    )


def exact_sums(
    a: Int64s, b: Int64s, *, seed: int, bound: int, multiply: Multiply = np.matmul
) -> Int64s:
    """`a @ b` in int64, whatever floating point gives.

    A large product is computed by floating-point BLAS and then proved by integers in O(n^2); where
    the proof fails the host's floating-point unit is at fault, and integers compute it after all.

    Args:
        a: `(..., M, K)`.
        b: `(..., K, N)`.
        seed: Seed of the proof.
        bound: From `prove`, below 2^53; it tells which float holds every sum.
        multiply: The product that is not believed.
    """
    if a.size * b.shape[-1] <= SMALL_PRODUCT:
        return a @ b
    dtype = np.float32 if bound < 1 << 24 else np.float64
    quick = multiply(a.astype(dtype), b.astype(dtype))
    if verify_product(a, b, quick, seed=derive(seed, 6)):
        return quick.astype(np.int64)
    return a @ b


def permutation_product(
    shape: tuple[int, ...], *, precision: Precision, out: str, seed: int
) -> Product:
    """A product with one non-zero in each column of B: every output is one rounded product.

    Full significands and wide exponents pass through the multiplier; the sums only add zeros.

    Args:
        shape: (..., M, K, N).
        precision: How it will be computed. Not an integer one.
        out: Dtype of the result.
        seed: Any integer.
    """
    *batch, m, k, n = shape
    # The product of two significands must fit 62 bits to be rounded by integers.
    bits = min(precision.operand_bits, 31)
    reach = min(precision.max_scale, 6)
    a, a_exponent = _full_significands((*batch, m, k), bits, reach, derive(seed, 1))
    values, value_exponent = _full_significands((*batch, 1, n), bits, reach, derive(seed, 2))
    source = shift_right(random_words(np, n, seed=derive(seed, 3)), 32) % k
    b = np.zeros((*batch, k, n), dtype=np_dtype(precision.operand))
    b[..., source, np.arange(n)] = encode(values, value_exponent, dtype=precision.operand)[
        ..., 0, :
    ]
    return Product(
        a=encode(a, a_exponent, dtype=precision.operand),
        b=b,
        expected=encode(
            a[..., source] * values, a_exponent[..., source] + value_exponent, dtype=out
        ),
        value_class=ValueClass.PERMUTATION,
        coverage=f"{'x'.join(map(str, shape))} {bits}-bit significands, exponents +-{reach}",
    )


def _full_significands(
    shape: tuple[int, ...], bits: int, reach: int, seed: int
) -> tuple[Int64s, Int64s]:
    """Signed significands of exactly `bits` bits, and exponents that put them near 2^+-reach."""
    words = random_words(np, int(np.prod(shape, dtype=np.int64)), seed=seed).reshape(shape)
    magnitude = shift_right(words, 33) >> (31 - bits) | (1 << (bits - 1))
    exponent = (words & 0xFFFF) % (2 * reach + 1) - reach - bits
    return np.where(words >> 17 & 1, -magnitude, magnitude), exponent


def _scales(seed: int, m: int, n: int, largest: int) -> tuple[Int64s, Int64s]:
    """Exponents for the rows of A and the columns of B; never positive where range is narrow."""
    if largest == 0:
        return np.zeros(m, dtype=np.int64), np.zeros(n, dtype=np.int64)
    low = -largest
    width = largest + 1 if largest < 10 else 2 * largest + 1
    rows = low + shift_right(random_words(np, m, seed=derive(seed, 4)), 32) % width
    columns = low + shift_right(random_words(np, n, seed=derive(seed, 5)), 32) % width
    return rows, columns


def _stored(values: Int64s, exponent: Int64s, dtype: str) -> Host:
    """Scaled integers in the bits of a dtype, rounded to nearest even where they must be."""
    if FORMATS[dtype].kind == "float":
        return encode(values, exponent, dtype=dtype)
    return values.astype(np_dtype(dtype))
