# SPDX-License-Identifier: Apache-2.0
"""Inexact functions, held to an error bound against float64 on the host.

Bounds are in units of the dtype's epsilon and lie above what vendors document (CUDA C++ Programming
Guide, mathematical functions: at most 2 ulp; SLEEF: 1 ulp) and above what torch, numpy and XLA were
measured to do on a CPU (docs/log.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from truestep.numerics.bits import FORMATS, np_dtype
from truestep.numerics.inputs import random_words
from truestep.numerics.mixing import derive, shift_right
from truestep.reference import ReferenceKind
from truestep.screening.bench import Bench
from truestep.screening.spec import Level, Need, ScreeningTest

Host = npt.NDArray[Any]
Bound = Callable[[Host, Host], Host]

NUM_ELEMENTS = 8192
ROW_LENGTH = 128
NUM_REPEATS = 4
TOP_EXPONENT_BIT = 62
"""Modulo any width: the highest bit of the exponent. A bound does not see the lowest bits."""


class Function(NamedTuple):
    """A function, where it is tried, and its bound in epsilons from inputs and results."""

    of: Callable[[Host], Host]
    low: float
    high: float
    bound: Bound
    is_row: bool = False


def _relative(x: Host, y: Host) -> Host:
    del x
    four: Host = 4 * np.abs(y)
    return four


def _scaled(x: Host, y: Host) -> Host:
    """Where the argument is multiplied first, its rounding grows with its size."""
    return (4 + np.abs(x)) * np.abs(y)


def _cancelling(x: Host, y: Host) -> Host:
    """Where two terms of the size of the argument cancel."""
    bound: Host = 4 * np.maximum(np.abs(x), np.abs(y))
    return bound


def _near_zero(x: Host, y: Host) -> Host:
    """Where libraries give zero for a tiny argument, as torch does for erf in bfloat16."""
    del x
    bound: Host = 4 * np.maximum(np.abs(y), 2.0**-12)
    return bound


def _shifted(x: Host, y: Host) -> Host:
    bound: Host = (4 + np.ptp(x, axis=-1, keepdims=True)) * np.abs(y)
    return bound


def _centred(x: Host, y: Host) -> Host:
    del x
    return 16 * (1 + np.abs(y))


def _softmax(x: Host) -> Host:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    weights: Host = e / e.sum(axis=-1, keepdims=True)
    return weights


def _layer_norm(x: Host) -> Host:
    return _rms_norm(x - x.mean(axis=-1, keepdims=True))


def _rms_norm(x: Host) -> Host:
    normal: Host = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5)
    return normal


_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])

WIDE = 2.0**60

FUNCTIONS = {
    "exp": Function(np.exp, -80, 80, _relative),
    "exp2": Function(np.exp2, -120, 120, _scaled),
    "log": Function(np.log, 1.5, WIDE, _relative),
    "log2": Function(np.log2, 1.5, WIDE, _relative),
    "sqrt": Function(np.sqrt, 1 / WIDE, WIDE, _relative),
    "rsqrt": Function(lambda x: 1 / np.sqrt(x), 1 / WIDE, WIDE, _relative),
    "reciprocal": Function(lambda x: 1 / x, 1 / WIDE, WIDE, _relative),
    "sin": Function(np.sin, -100, 100, _cancelling),
    "cos": Function(np.cos, -100, 100, _cancelling),
    "tanh": Function(np.tanh, -12, 12, _relative),
    "erf": Function(_erf, -4, 4, _near_zero),
    "gelu": Function(lambda x: 0.5 * x * _erfc(-x / math.sqrt(2)), -12, 12, _cancelling),
    "silu": Function(lambda x: x / (1 + np.exp(-x)), -12, 12, _relative),
    "softmax": Function(_softmax, -12, 12, _shifted, is_row=True),
    "layer_norm": Function(_layer_norm, -12, 12, _centred, is_row=True),
    "rms_norm": Function(_rms_norm, -12, 12, _centred, is_row=True),
}


@cache
def _every_bf16(name: str) -> tuple[Host, Host]:
    """All bf16 values of a function's domain, and its float64 results.

    What is smaller than 2^-60 is left out, zero apart: results could be subnormal.
    """
    form = FUNCTIONS[name]
    x = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)
    x = x[np.isfinite(x)]
    wide = x.astype(np.float64)
    is_in = (wide >= form.low) & (wide <= form.high)
    x = x[is_in & ((np.abs(wide) >= 1 / WIDE) | (wide == 0))]
    if form.is_row:
        x = x[: x.size // ROW_LENGTH * ROW_LENGTH].reshape(-1, ROW_LENGTH)
    return x, form.of(x.astype(np.float64))


def _drawn_fp32(name: str, seed: int) -> tuple[Host, Host]:
    """float32 values over all binades of the domain, mantissas at random."""
    form = FUNCTIONS[name]
    words = random_words(np, NUM_ELEMENTS, seed=seed)
    mantissa = 1 + shift_right(words, 41) * 2.0**-23
    lowest = -12 if form.low <= 0 else math.floor(math.log2(form.low))
    exponents = lowest + (words & 0xFFFF) % (math.ceil(math.log2(form.high)) - lowest)
    sign = np.where((words >> 17) & 1 & (form.low < 0), -1.0, 1.0)
    x = np.clip(sign * mantissa * 2.0**exponents, form.low, form.high).astype(np.float32)
    if form.is_row:
        x = x.reshape(-1, ROW_LENGTH)
    return x, form.of(x.astype(np.float64))


def nearest_allowed(actual: Host, right: Host, bound: Host) -> Host:
    """What is compared with `actual`: itself where it is within the bound, else the right value."""
    with np.errstate(invalid="ignore", over="ignore"):
        is_within = np.abs(actual.astype(np.float64) - right) <= bound
        return np.where(is_within, actual, right.astype(actual.dtype))


def _check(bench: Bench, name: str, x_host: Host, right: Host, coverage: str) -> None:
    dtype = x_host.dtype.name
    epsilon = 2.0 ** (1 - FORMATS[dtype].significand_bits)
    site = f"{name}/{dtype}"
    x = bench.put(x_host)
    bound = FUNCTIONS[name].bound(x_host.astype(np.float64), right) * epsilon
    for _ in range(NUM_REPEATS):
        actual = bench.backend.function(name, x, site=site)
        allowed = nearest_allowed(bench.backend.get(actual), right, bound)
        bench.check(
            actual,
            # Not an input, so not by `bench.put`: it follows what was computed.
            bench.backend.put(allowed.astype(np_dtype(dtype)), bench.device),
            site=site,
            value_class="bounded",
            inputs={"x": x},
            coverage={"inputs": coverage},
        )


def _round(bench: Bench, seed: int, *, name: str) -> None:
    x, right = _every_bf16(name)
    _check(bench, name, x, right, f"all {x.size} bfloat16 values of the domain")
    for number in range(3):
        x, right = _drawn_fp32(name, derive(seed, number))
        _check(bench, name, x, right, "every binade of the domain, random float32 mantissas")


def _function(name: str) -> ScreeningTest:
    return ScreeningTest(
        id=f"function_{name}",
        level=Level.QUICK,
        groups=("function", "elementwise"),
        stresses=f"the units and tables behind {name}, in float32 and bfloat16",
        known_because="float64 on the host gives the right value far within the bound",
        blind_to="errors below the bound of a few epsilons; values outside the domain",
        reference=ReferenceKind.INVARIANT,
        needs=(Need(op="function", precision=name),),
        run=partial(_round, name=name),
        share=0.25,
        min_rounds=2,
        planted_bit=TOP_EXPONENT_BIT,
    )


TESTS = tuple(map(_function, FUNCTIONS))
