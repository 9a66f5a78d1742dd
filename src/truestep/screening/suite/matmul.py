# SPDX-License-Identifier: Apache-2.0
"""Exact matrix products in every precision, over the shapes that training uses."""

from __future__ import annotations

from functools import partial

import numpy as np

from truestep.backends.protocol import Array, Host
from truestep.numerics.exact import (
    PRECISIONS,
    Product,
    ValueClass,
    integer_product,
    permutation_product,
)
from truestep.numerics.inputs import Distribution
from truestep.numerics.mixing import derive
from truestep.reference import ReferenceKind
from truestep.screening.bench import Bench
from truestep.screening.spec import Level, Need, ScreeningTest

NUM_REPEATS = 64
"""Products with the same operands before they are changed."""

SHAPES = {
    "square": (48, 48, 48),
    "tall": (160, 24, 16),
    "wide": (16, 24, 160),
    "batched": (4, 24, 32, 24),
    "transposed": (40, 64, 24),
    "odd": (37, 53, 29),
    # Attention and feed-forward of a Llama block (4096, 1024 and 14336 wide), a 64th as wide.
    "llama_attention": (32, 64, 64),
    "llama_key_value": (32, 64, 16),
    "llama_up": (32, 64, 224),
    "llama_down": (32, 224, 64),
}

GROWTH = {1: 1, 2: 2, 3: 4, 4: 8}
"""Every side but the batch is multiplied by this at each level."""


def repeat_product(bench: Bench, product: Product, *, precision: str, is_transposed: bool) -> None:
    """Compute one known product many times and hand every result to the bench."""
    backend = bench.backend
    a = _put(bench, product.a, is_transposed=is_transposed)
    b = bench.put(product.b)
    site = f"matmul/{precision}"
    out = PRECISIONS[precision].natural_output
    bench.check_repeats(
        lambda: backend.matmul(a, b, precision=precision, out=out, site=site),
        bench.put(product.expected),
        times=NUM_REPEATS,
        site=site,
        value_class=product.value_class,
        inputs={"a": a, "b": b},
        coverage={"shape": product.coverage},
    )


def _put(bench: Bench, host: Host, *, is_transposed: bool) -> Array:
    if not is_transposed:
        return bench.put(host)
    columns = bench.put(np.ascontiguousarray(np.swapaxes(host, -1, -2)))
    return bench.backend.xp.matrix_transpose(columns)


def _shape(seed: int, level: int) -> tuple[str, tuple[int, ...]]:
    kind = list(SHAPES)[derive(seed, 10) % len(SHAPES)]
    *batch, m, k, n = SHAPES[kind]
    growth = GROWTH[level]
    return kind, (*batch, m * growth, k * growth, n * growth)


def _exact_round(bench: Bench, seed: int, *, precision: str) -> None:
    kind, shape = _shape(seed, bench.level)
    product = integer_product(
        shape,
        precision=PRECISIONS[precision],
        out=PRECISIONS[precision].natural_output,
        value_class=(ValueClass.ACCUMULATOR_EXACT, ValueClass.OUTPUT_EXACT)[derive(seed, 11) % 2],
        seed=seed,
        distribution=list(Distribution)[derive(seed, 12) % len(Distribution)],
    )
    repeat_product(bench, product, precision=precision, is_transposed=kind == "transposed")


def _permutation_round(bench: Bench, seed: int, *, precision: str) -> None:
    kind, shape = _shape(seed, bench.level)
    product = permutation_product(
        shape, precision=PRECISIONS[precision], out=PRECISIONS[precision].natural_output, seed=seed
    )
    repeat_product(bench, product, precision=precision, is_transposed=kind == "transposed")


def _exact(precision: str) -> ScreeningTest:
    return ScreeningTest(
        id=f"matmul_exact_{precision}",
        level=Level.QUICK,
        groups=("matmul", precision),
        stresses=f"{precision} multipliers and accumulators, operand paths, on-chip memories",
        known_because="integers whose sums of |a||b| stay below the accumulator's limit have one "
        "result in every order; it comes from integer arithmetic",
        blind_to="significands wider than the amplitude allows (see matmul_permutation); "
        "faults that need real value ranges, heat or other kernels",
        reference=ReferenceKind.EXACT,
        needs=(Need(op="matmul", precision=precision),),
        run=partial(_exact_round, precision=precision),
        # 24 x 64 products: a fault in one call of 200 is missed once in 2,000 runs.
        min_rounds=24,
    )


def _permutation(precision: str) -> ScreeningTest:
    return ScreeningTest(
        id=f"matmul_permutation_{precision}",
        level=Level.QUICK,
        groups=("matmul", "permutation", precision),
        stresses=f"{precision} multipliers over full significands and wide exponents, rounding",
        known_because="each output is one product, rounded once; integers round it",
        blind_to="carries between terms of a sum (see matmul_exact)",
        reference=ReferenceKind.EXACT,
        needs=(Need(op="matmul", precision=precision),),
        run=partial(_permutation_round, precision=precision),
        min_rounds=24,
    )


TESTS = (
    *map(_exact, ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")),
    *map(_permutation, ("fp64", "fp32", "tf32", "bf16", "fp16")),
)
