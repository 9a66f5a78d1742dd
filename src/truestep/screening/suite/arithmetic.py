# SPDX-License-Identifier: Apache-2.0
"""Element-wise `+ - x /` in floating point: IEEE 754 rounds each of them correctly."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from truestep.numerics.bits import FORMATS
from truestep.numerics.inputs import random_words
from truestep.numerics.mixing import derive, shift_right
from truestep.numerics.rounding import encode
from truestep.reference import ReferenceKind
from truestep.screening.bench import Bench
from truestep.screening.spec import Level, Need, ScreeningTest

Int64s = npt.NDArray[np.int64]
Host = npt.NDArray[Any]

OPERATIONS = ("add", "subtract", "multiply", "divide")
NUM_ELEMENTS = 2048
NUM_REPEATS = 8


def significands(num: int, *, bits: int, seed: int) -> Int64s:
    """Signed integers of exactly `bits` bits (at most 53), every bit below the top random."""
    words = random_words(np, num, seed=seed)
    magnitude = shift_right(words, 64 - bits) | (1 << (bits - 1))
    signed: Int64s = np.where(words & 1, -magnitude, magnitude)
    return signed


def known_result(op: str, dtype: str, seed: int) -> tuple[Host, Host, Host]:
    """Two operands and their result by integer arithmetic, all in `dtype`.

    Sums align two significands within 62 bits; products are at most 62 bits long; quotients carry
    a sticky bit. float64 products have 31-bit operands, its quotients are exact.
    """
    bits = FORMATS[dtype].significand_bits
    reach = 3 if dtype == "float16" else 8
    exponents = shift_right(random_words(np, NUM_ELEMENTS, seed=derive(seed, 3)), 32)
    e = exponents % (2 * reach + 1) - reach - bits
    if op in ("multiply", "divide"):
        bits = min(bits, 31)
    x = significands(NUM_ELEMENTS, bits=bits, seed=derive(seed, 1))
    y = significands(NUM_ELEMENTS, bits=bits, seed=derive(seed, 2))
    if op == "multiply":
        operands = encode(x, e, dtype=dtype), encode(y, -bits, dtype=dtype)
        return *operands, encode(x * y, e - bits, dtype=dtype)
    if op == "divide":
        return _quotient(x, y, e, dtype)
    lift = np.minimum(exponents >> 8 & 7, 62 - bits)
    left = x << lift
    result = left + y if op == "add" else left - y
    operands = encode(left, e, dtype=dtype), encode(y, e, dtype=dtype)
    return *operands, encode(result, e, dtype=dtype)


def _quotient(x: Int64s, y: Int64s, e: Int64s, dtype: str) -> tuple[Host, Host, Host]:
    bits = FORMATS[dtype].significand_bits
    if bits > 31:
        # 26-bit factors: their product is held exactly, so the quotient is one of them.
        x, y = x >> 5, y >> 5
        return (
            encode(x * y, e, dtype=dtype),
            encode(y, 0, dtype=dtype),
            encode(x, e, dtype=dtype),
        )
    shift = bits + 2
    numerator, divisor = np.abs(x) << shift, np.abs(y)
    quotient = numerator // divisor
    # The lowest bit stands for all that the division left over.
    sticky = (quotient << 1) | (quotient * divisor != numerator)
    signed = np.where((x < 0) != (y < 0), -sticky, sticky)
    return (
        encode(x, e, dtype=dtype),
        encode(y, -bits, dtype=dtype),
        encode(signed, e + bits - shift - 1, dtype=dtype),
    )


def check_pairs(
    bench: Bench, op: str, x_host: Host, y_host: Host, expected_host: Host, *, value_class: str
) -> None:
    """Compute one operation on known pairs many times, and hand every result to the bench."""
    x, y, expected = bench.put(x_host), bench.put(y_host), bench.put(expected_host)
    site = f"{op}/{x_host.dtype.name}"
    bench.check_repeats(
        partial(bench.backend.elementwise, op, x, y, site=site),
        expected,
        times=NUM_REPEATS,
        site=site,
        value_class=value_class,
        inputs={"x": x, "y": y},
        coverage={"shape": f"{x_host.size}", "operands": f"{x_host.size} random pairs a round"},
    )


def _round(bench: Bench, seed: int, *, dtype: str) -> None:
    for order, op in enumerate(OPERATIONS):
        known = known_result(op, dtype, derive(seed, order))
        check_pairs(bench, op, *known, value_class="rounded_once")


def _arithmetic(dtype: str) -> ScreeningTest:
    return ScreeningTest(
        id=f"arithmetic_{dtype}",
        level=Level.QUICK,
        groups=("arithmetic", "elementwise"),
        stresses=f"{dtype} adders, multipliers and dividers of the vector units",
        known_because="IEEE 754 rounds these four operations correctly; integers round them here",
        blind_to="subnormal and non-finite values; fused operations; operands that were not drawn",
        reference=ReferenceKind.EXACT,
        needs=(Need(op="elementwise", precision=dtype),),
        run=partial(_round, dtype=dtype),
        share=0.5,
        min_rounds=4,
    )


TESTS = tuple(map(_arithmetic, ("float64", "float32", "bfloat16", "float16")))
