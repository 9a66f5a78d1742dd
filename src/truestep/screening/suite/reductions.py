# SPDX-License-Identifier: Apache-2.0
"""Sums, maxima and minima of integers: exact in every order."""

from __future__ import annotations

from functools import partial

import numpy as np

from truestep.numerics.bits import np_dtype
from truestep.numerics.inputs import MOST_AMPLITUDE, random_integers
from truestep.numerics.mixing import derive
from truestep.reference import ReferenceKind
from truestep.screening.bench import Bench
from truestep.screening.spec import Level, Need, ScreeningTest

NUM_ROWS = 32
NUM_REPEATS = 8

LENGTHS = {"float64": 8192, "float32": 8192, "bfloat16": 251, "float16": 1021, "int32": 8192}

LIMITS = {
    "float64": 1 << 53,
    "float32": (1 << 24) - 1,
    "bfloat16": 1 << 8,
    "float16": 1 << 11,
    "int32": (1 << 31) - 1,
}
"""Sums of |x| up to this are exact in every order, whatever the library adds them up in."""


def _round(bench: Bench, seed: int, *, dtype: str) -> None:
    length = LENGTHS[dtype]
    amplitude = min(LIMITS[dtype] // length, MOST_AMPLITUDE)
    values = random_integers((NUM_ROWS, length), seed=derive(seed, 1), amplitude=amplitude)
    x = bench.put(values.astype(np_dtype(dtype)))
    for op in ("sum", "max", "min"):
        expected = bench.put(getattr(np, op)(values, axis=1).astype(np_dtype(dtype)))
        site = f"{op}/{dtype}"
        bench.check_repeats(
            partial(bench.backend.reduce, op, x, axis=1, site=site),
            expected,
            times=NUM_REPEATS,
            site=site,
            value_class="accumulator_exact",
            inputs={"x": x},
            coverage={"shape": f"{NUM_ROWS}x{length} |x|<={amplitude}"},
        )


def _reduction(dtype: str) -> ScreeningTest:
    return ScreeningTest(
        id=f"reduction_{dtype}",
        level=Level.QUICK,
        groups=("reduction",),
        stresses=f"{dtype} adder trees and comparators, shuffles between lanes",
        known_because="integers whose sum of |x| stays below the limit add up alike in every order",
        blind_to="rounding of sums, wide exponents",
        reference=ReferenceKind.EXACT,
        needs=(Need(op="reduce", precision=dtype),),
        run=partial(_round, dtype=dtype),
        share=0.5,
        min_rounds=4,
    )


TESTS = tuple(map(_reduction, LENGTHS))
