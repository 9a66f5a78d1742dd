# SPDX-License-Identifier: Apache-2.0
"""Integer and bit operations, against results found by other instructions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from truestep.numerics.inputs import random_words
from truestep.numerics.mixing import derive, shift_right
from truestep.reference import ReferenceKind
from truestep.screening.bench import Bench
from truestep.screening.spec import Level, Need, ScreeningTest
from truestep.screening.suite.arithmetic import check_pairs

NUM_ELEMENTS = 4096

Ints = npt.NDArray[Any]


def _sum_by_carries(x: Ints, y: Ints) -> Ints:
    """The sum by xor and carry, one carry step a bit."""
    while y.any():
        x, y = x ^ y, (x & y) << 1
    return x


def _product_by_limbs(x: Ints, y: Ints) -> Ints:
    """The product modulo the word, as a sum of shifted products of 16-bit limbs."""
    width = x.dtype.itemsize * 8
    total = np.zeros_like(x)
    for i in range(0, width, 16):
        for j in range(0, width - i, 16):
            limbs = ((x >> i) & 0xFFFF).astype(np.uint64) * ((y >> j) & 0xFFFF).astype(np.uint64)
            total = _sum_by_carries(total, (limbs << np.uint64(i + j)).astype(x.dtype))
    return total


OTHER_WAYS: dict[str, Callable[[Ints, Ints], Ints]] = {
    "add": _sum_by_carries,
    "subtract": lambda x, y: ~_sum_by_carries(~x, y),
    "multiply": _product_by_limbs,
    "bitwise_and": lambda x, y: ~(~x | ~y),
    "bitwise_or": lambda x, y: ~(~x & ~y),
    "bitwise_xor": lambda x, y: (x | y) - (x & y),
    "bitwise_left_shift": lambda x, y: x * (np.ones_like(x) << y),
    "bitwise_right_shift": lambda x, y: x // (np.ones_like(x) << y),
}
"""Each operation, computed by instructions other than its own. Shifts are by 0..30."""


def _round(bench: Bench, seed: int, *, dtype: str) -> None:
    x_host = random_words(np, NUM_ELEMENTS, seed=derive(seed, 1)).astype(dtype)
    y_words = random_words(np, NUM_ELEMENTS, seed=derive(seed, 2))
    for op, other_way in OTHER_WAYS.items():
        y_host = (shift_right(y_words, 32) % 31 if "shift" in op else y_words).astype(dtype)
        expected = other_way(x_host, y_host)
        check_pairs(bench, op, x_host, y_host, expected, value_class="wrapping")


def _integers(dtype: str) -> ScreeningTest:
    return ScreeningTest(
        id=f"integers_{dtype}",
        level=Level.QUICK,
        groups=("integers", "elementwise"),
        stresses=f"{dtype} adders, multipliers, shifters and logic of the vector units",
        known_because="each result is found a second time by other instructions",
        blind_to="integer division; a defect that both ways share",
        reference=ReferenceKind.EXACT,
        needs=(Need(op="elementwise", precision=dtype),),
        run=partial(_round, dtype=dtype),
        share=0.5,
        min_rounds=4,
    )


TESTS = tuple(map(_integers, ("int32", "int64")))
