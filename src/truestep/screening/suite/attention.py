# SPDX-License-Identifier: Apache-2.0
"""Fused attention, forward and backward, with a result that is known bit for bit.

Every key carries a one-hot class and every query asks for one; 2^m keys of that class tie at the
top, all others lie so far below (128 or more) that their weight is zero in fp32. The weights are
then exactly 2^-m, and with integers for values and gradients every product and sum is exact. Keys
also carry small integers in coordinates that no query looks at, or dq would vanish.

Legend: T queries, S keys, D head size, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from truestep.numerics.bits import np_dtype
from truestep.numerics.inputs import random_integers, random_words
from truestep.numerics.mixing import derive, shift_right
from truestep.reference import ReferenceKind
from truestep.screening.bench import Bench
from truestep.screening.spec import Level, Need, ScreeningTest

Host = npt.NDArray[Any]

NUM_QUERIES, NUM_KEYS, HEAD_SIZE, NUM_CLASSES_AT_MOST = 48, 32, 64, 32
PEAK = 32
SCALE = 0.25
"""A power of four: kernels that scale q and k by its root each stay exact. PEAK^2 SCALE = 256."""

NUM_REPEATS = 8
LARGEST_VALUE = 2
NUM_GRADIENTS = 2
"""Non-zero gradients of a query, so that every intermediate fits the 8 bits of bf16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Operands and known results, each (1, 1, T or S, D), as float64 that holds them exactly."""

    q: Host
    k: Host
    v: Host
    gradient: Host
    out: Host
    dq: Host
    dk: Host
    dv: Host


def known_attention(ties: int, seed: int) -> Attention:
    """One head in which 2^ties keys tie for every query."""
    num_classes = NUM_CLASSES_AT_MOST >> ties
    classes = np.argsort(random_words(np, NUM_KEYS, seed=derive(seed, 1))) % num_classes
    wanted = shift_right(random_words(np, NUM_QUERIES, seed=derive(seed, 2)), 32) % num_classes
    q = np.zeros((NUM_QUERIES, HEAD_SIZE))
    q[np.arange(NUM_QUERIES), wanted] = PEAK
    k = random_integers((NUM_KEYS, HEAD_SIZE), seed=derive(seed, 3), amplitude=1) * 1.0
    k[:, :num_classes] = 0
    k[np.arange(NUM_KEYS), classes] = PEAK
    v = random_integers((NUM_KEYS, HEAD_SIZE), seed=derive(seed, 4), amplitude=LARGEST_VALUE) * 1.0
    gradient = np.zeros((NUM_QUERIES, HEAD_SIZE))
    where = shift_right(random_words(np, NUM_QUERIES * 2, seed=derive(seed, 5)), 32) % HEAD_SIZE
    for column in where.reshape(NUM_GRADIENTS, NUM_QUERIES):
        gradient[np.arange(NUM_QUERIES), column] = 1 - 2 * (column % 2)
    weights = (wanted[:, None] == classes[None, :]) / 2**ties
    out = weights @ v
    d_weights = gradient @ v.T
    d_scores = weights * (d_weights - (gradient * out).sum(axis=1, keepdims=True))
    parts = {
        "q": q,
        "k": k,
        "v": v,
        "gradient": gradient,
        "out": out,
        "dq": d_scores @ k * SCALE,
        "dk": d_scores.T @ q * SCALE,
        "dv": weights.T @ gradient,
    }
    return Attention(**{name: part[None, None] for name, part in parts.items()})


def _round(bench: Bench, seed: int, *, kernel: str, dtype: str) -> None:
    # A fused backward recomputes the weights from a logarithm, which is exact for one key only.
    ties = derive(seed, 1) % 3 if kernel == "math" else 0
    known = known_attention(ties, derive(seed, 2))
    names = ("q", "k", "v", "gradient", "out", "dq", "dk", "dv")
    on = {n: bench.put(getattr(known, n).astype(np_dtype(dtype))) for n in names}
    q, k, v, gradient = (on[n] for n in names[:4])
    site = f"attention_{kernel}/{dtype}"
    how: dict[str, Any] = {"scale": SCALE, "kernel": kernel, "site": site}
    inputs = {n: on[n] for n in names[:4]}
    coverage = {"shape": f"{NUM_QUERIES}x{NUM_KEYS}x{HEAD_SIZE}", "ties": str(2**ties)}
    for _ in range(NUM_REPEATS):
        results = {
            site: (bench.backend.attention(q, k, v, **how), on["out"]),
            **{
                f"{site}/{n}": (result, on[n])
                for n, result in zip(
                    names[5:],
                    bench.backend.attention_backward(q, k, v, gradient, **how),
                    strict=True,
                )
            },
        }
        for where, (actual, expected) in results.items():
            bench.check(
                actual,
                expected,
                site=where,
                value_class="tied_one_hot",
                inputs=inputs,
                coverage=coverage,
            )


def _attention(kernel: str, dtype: str) -> ScreeningTest:
    return ScreeningTest(
        id=f"attention_{kernel}_{dtype}",
        level=Level.QUICK,
        groups=("attention",),
        stresses=f"the {kernel} attention kernel in {dtype}: products, exponentials, reductions",
        known_because="tied one-hot scores give weights that are powers of two, or zero",
        blind_to="softmax over general scores; masks; dropout"
        + ("" if kernel == "math" else "; dq and dk other than zero"),
        reference=ReferenceKind.EXACT,
        needs=(Need(op=f"attention_{kernel}", precision=dtype),),
        run=partial(_round, kernel=kernel, dtype=dtype),
        share=0.5,
        min_rounds=4,
    )


TESTS = tuple(
    _attention(kernel, dtype)
    for kernel in ("math", "flash", "efficient", "cudnn")
    for dtype in ("float32", "bfloat16", "float16")
)
