# SPDX-License-Identifier: Apache-2.0
"""Gather, scatter, embedding, sort, cumulative sum and transpose, with exact integers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import numpy.typing as npt

from truestep.numerics.bits import np_dtype
from truestep.numerics.inputs import random_integers, random_words
from truestep.numerics.mixing import derive, shift_right
from truestep.reference import ReferenceKind
from truestep.screening.bench import Bench
from truestep.screening.spec import Level, Need, ScreeningTest

Int64s = npt.NDArray[np.int64]

NUM_ROWS, NUM_COLUMNS, NUM_INDICES = 96, 64, 256
NUM_REPEATS = 8

AMPLITUDE = {"float32": 60_000, "bfloat16": 1, "float16": 7, "int32": 1 << 20}
"""Sums of 257 of these stay below what the dtype holds exactly, whatever they are added up in."""

PATTERNS = ("random", "one_row", "stride", "permutation")


def indices(pattern: str, seed: int) -> Int64s:
    """Row numbers (N,): drawn, all the same, strided with wrap-around, or each equally often."""
    words: Int64s = shift_right(random_words(np, NUM_INDICES, seed=seed), 32)
    if pattern == "random":
        words %= NUM_ROWS
        return words
    if pattern == "one_row":
        return np.full(NUM_INDICES, words[0] % NUM_ROWS)
    if pattern == "stride":
        strided: Int64s = np.arange(NUM_INDICES) * (2 + words[0] % 16) % NUM_ROWS
        return strided
    each: Int64s = np.argsort(words) % NUM_ROWS
    return each


def known_results(x: Int64s, i: Int64s, v: Int64s) -> Mapping[str, tuple[Int64s, ...]]:
    """For each operation its operands and, last, its result, by integer arithmetic."""
    added, alone = x.copy(), np.zeros_like(x)
    np.add.at(added, i, v)
    np.add.at(alone, i, v)
    return {
        "take": (x, i, x[i]),
        "scatter_add": (x, i, v, added),
        "embedding_backward": (v, i, x, alone),
        "sort": (x, np.sort(x, axis=-1)),
        "cumulative_sum": (x, np.cumsum(x, axis=-1)),
        "transpose": (x, x.T),
    }


def _round(bench: Bench, seed: int, *, dtype: str) -> None:
    draw = partial(random_integers, amplitude=AMPLITUDE[dtype])
    x = draw((NUM_ROWS, NUM_COLUMNS), seed=derive(seed, 1))
    v = draw((NUM_INDICES, NUM_COLUMNS), seed=derive(seed, 2))
    pattern = PATTERNS[derive(seed, 3) % len(PATTERNS)]
    i = indices(pattern, derive(seed, 4))
    for op, arrays in known_results(x, i, v).items():
        if op == "embedding_backward" and dtype == "int32":
            continue
        *operands, expected = (
            bench.put(a if a is i else a.astype(np_dtype(dtype))) for a in arrays
        )
        site = f"{op}/{dtype}"
        bench.check_repeats(
            partial(bench.backend.rearrange, op, *operands, site=site),
            expected,
            times=NUM_REPEATS,
            site=site,
            value_class="integers",
            inputs={f"operand{n}": a for n, a in enumerate(operands)},
            coverage={
                "shape": f"{NUM_ROWS}x{NUM_COLUMNS}, {NUM_INDICES} indices",
                "indices": pattern,
            },
        )


def _indexing(dtype: str) -> ScreeningTest:
    return ScreeningTest(
        id=f"indexing_{dtype}",
        level=Level.QUICK,
        groups=("indexing",),
        stresses=f"address units, atomics and shuffles for {dtype}",
        known_because="integers are moved, or added up within what the dtype holds exactly",
        blind_to="rounding; tables larger than a cache at level 1",
        reference=ReferenceKind.EXACT,
        needs=(Need(op="rearrange", precision=dtype),),
        run=partial(_round, dtype=dtype),
        share=0.5,
        min_rounds=4,
    )


TESTS = tuple(map(_indexing, AMPLITUDE))
