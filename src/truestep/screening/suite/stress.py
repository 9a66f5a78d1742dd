# SPDX-License-Identifier: Apache-2.0
"""Matrix products at full rate, every output bit checked: steady, and in bursts from idle.

The runner starts a test on all devices and cores together, so this is also the load under which
marginal parts fail.
"""

from __future__ import annotations

import time
from functools import partial

from truestep.numerics.exact import PRECISIONS, ValueClass, integer_product
from truestep.reference import ReferenceKind
from truestep.screening.bench import Bench
from truestep.screening.spec import Level, Need, ScreeningTest
from truestep.screening.suite.matmul import repeat_product

SIDE = {
    "cpu": {1: 256, 2: 512, 3: 2048, 4: 2048},
    "accelerator": {1: 2048, 2: 4096, 3: 8192, 4: 8192},
}

BURST_PERIOD_S = 0.05


def _round(bench: Bench, seed: int, *, precision: str, is_burst: bool) -> None:
    side = SIDE["cpu" if bench.device.kind == "cpu" else "accelerator"][bench.level]
    product = integer_product(
        (side, side, side),
        precision=PRECISIONS[precision],
        out=PRECISIONS[precision].natural_output,
        value_class=ValueClass.ACCUMULATOR_EXACT,
        seed=seed,
    )
    if is_burst:
        bench.backend.synchronize(bench.device)
        # Every device wakes at the same moment: the load step is as large as it can be.
        time.sleep(BURST_PERIOD_S - time.time() % BURST_PERIOD_S)
    repeat_product(bench, product, precision=precision, is_transposed=False)


def _stress(kind: str, precision: str) -> ScreeningTest:
    return ScreeningTest(
        id=f"stress_{kind}_{precision}",
        level=Level.QUICK,
        groups=("stress", precision),
        stresses=f"{precision} units, caches and power delivery under full load of all devices"
        + (" that sets in at once" if kind == "burst" else ""),
        known_because="a seed's first product is proved by integers, its repeats must equal it",
        blind_to="faults outside products; what only a longer or hotter run brings out",
        reference=ReferenceKind.EXACT,
        needs=(Need(op="matmul", precision=precision),),
        run=partial(_round, precision=precision, is_burst=kind == "burst"),
        share=2.0,
        min_rounds=2,
    )


TESTS = (
    _stress("steady", "fp32"),
    _stress("steady", "bf16"),
    _stress("burst", "fp32"),
)
