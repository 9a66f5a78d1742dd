# SPDX-License-Identifier: Apache-2.0
"""Conversions between formats: correctly rounded, so known bit for bit."""

from __future__ import annotations

from functools import partial

import numpy as np

from truestep.numerics.bits import FORMATS
from truestep.numerics.inputs import random_words
from truestep.numerics.mixing import derive, shift_right
from truestep.numerics.rounding import encode
from truestep.reference import ReferenceKind
from truestep.screening.bench import Bench
from truestep.screening.spec import Level, Need, ScreeningTest
from truestep.screening.suite.arithmetic import significands

NUM_ELEMENTS = 2048
NUM_REPEATS = 16

REACH = {"float32": 60, "bfloat16": 60, "float16": 10, "float8_e4m3fn": 5, "float8_e5m2": 10}
"""Binary exponents that stay normal after rounding, to either side of 1."""


def _round(bench: Bench, seed: int, *, source: str, target: str) -> None:
    bits = FORMATS[source].significand_bits
    dropped = bits - FORMATS[target].significand_bits
    values = significands(NUM_ELEMENTS, bits=bits, seed=derive(seed, 1))
    words = random_words(np, NUM_ELEMENTS, seed=derive(seed, 2))
    # Every fourth value lies halfway between two results, where ties go to even.
    tie = (values >> dropped << dropped) + (1 << (dropped - 1))
    values = np.where(words & 3 == 0, tie, values)
    reach = REACH[target]
    exponent = shift_right(words, 32) % (2 * reach) - reach - bits + 1
    x = bench.put(encode(values, exponent, dtype=source))
    expected = bench.put(encode(values, exponent, dtype=target))
    site = f"cast/{target}"
    bench.check_repeats(
        partial(bench.backend.cast, x, target, site=site),
        expected,
        times=NUM_REPEATS,
        site=site,
        value_class="rounded_once",
        inputs={"x": x},
        coverage={"from": source, "shape": f"{NUM_ELEMENTS}"},
    )


def _cast(source: str, target: str) -> ScreeningTest:
    return ScreeningTest(
        id=f"cast_{target}",
        level=Level.QUICK,
        groups=("cast", "elementwise"),
        stresses=f"conversion from {source} to {target}: rounding and packing",
        known_because="a conversion is one correct rounding; integers make it here, ties included",
        blind_to="values that overflow or become subnormal in the target",
        reference=ReferenceKind.EXACT,
        needs=(Need(op="cast", precision=source), Need(op="cast", precision=target)),
        run=partial(_round, source=source, target=target),
        share=0.5,
        min_rounds=4,
    )


TESTS = (
    _cast("float64", "float32"),
    *(_cast("float32", t) for t in ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")),
)
