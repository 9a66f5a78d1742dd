# SPDX-License-Identifier: Apache-2.0
"""What does checking cost under full load? Products through the bench beside bare products.

One pair: the stress test's 64 products of n x n in fp32 with one seed through the bench (inputs
drawn, the first product proved by integers, every output compared), and 64 bare calls of
`backend.matmul` on the same operands. As in a worker: one thread, pinned.

    python benchmarks/bench_stress.py
    python benchmarks/bench_stress.py --scale 0.1
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import result_sheet
import torch

from truestep.backends.open import open_backend
from truestep.backends.protocol import Backend
from truestep.backends.threads import THREAD_SWITCHES
from truestep.device import Device
from truestep.numerics.exact import PRECISIONS, Product, ValueClass, integer_product
from truestep.numerics.mixing import derive
from truestep.screening.bench import Bench
from truestep.screening.suite.matmul import NUM_REPEATS, repeat_product

SIDE = 2048
NUM_PAIRS = 10
PRECISION = "fp32"
TARGET = 0.92


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Seconds of the same products, checked and bare, and of drawing and proving them alone."""

    checked_s: float
    bare_s: float
    drawing_s: float

    @property
    def ratio(self) -> float:
        """Checked over bare rate."""
        return self.bare_s / self.checked_s


Clock = Callable[[], float]


def seconds(call: Callable[[], object], clock: Clock) -> float:
    start_s = clock()
    call()
    return clock() - start_s


def product_of(side: int, seed: int) -> Product:
    return integer_product(
        (side, side, side),
        precision=PRECISIONS[PRECISION],
        out=PRECISIONS[PRECISION].natural_output,
        value_class=ValueClass.ACCUMULATOR_EXACT,
        seed=seed,
    )


def measure(
    backend: Backend, device: Device, *, side: int, seed: int, is_first: bool, clock: Clock
) -> Pair:
    """One pair; who begins takes turns."""
    bench = Bench(backend=backend, device=device)
    drawn: list[Product] = []
    drawing_s = seconds(lambda: drawn.append(product_of(side, seed)), clock)
    a, b = backend.put(drawn[0].a, device), backend.put(drawn[0].b, device)
    out = PRECISIONS[PRECISION].natural_output

    def checked() -> None:
        product = product_of(side, seed)
        repeat_product(bench, product, precision=PRECISION, is_transposed=False)
        backend.synchronize(device)

    def bare() -> None:
        for _ in range(NUM_REPEATS):
            backend.matmul(a, b, precision=PRECISION, out=out, site="matmul")
        backend.synchronize(device)

    times = {
        call: seconds(call, clock) for call in ((checked, bare) if is_first else (bare, checked))
    }
    assert bench.num_comparisons == NUM_REPEATS
    assert bench.num_miscompares == 0
    return Pair(checked_s=times[checked], bare_s=times[bare], drawing_s=drawing_s)


def pairs_of(
    backend: Backend, device: Device, *, side: int, num: int, clock: Clock = time.perf_counter
) -> list[Pair]:
    """A short warm-up, then interleaved pairs."""
    measure(backend, device, side=min(side, 256), seed=0, is_first=True, clock=clock)
    return [
        measure(backend, device, side=side, seed=derive(1, i), is_first=i % 2 == 0, clock=clock)
        for i in range(num)
    ]


def row_of(label: str, side: int, pairs: list[Pair]) -> list[object]:
    gflop = 2 * side**3 * NUM_REPEATS / 1e9
    ratios = sorted(p.ratio for p in pairs)
    return [
        label,
        len(pairs),
        f"{statistics.median(gflop / p.checked_s for p in pairs):.1f}",
        f"{statistics.median(gflop / p.bare_s for p in pairs):.1f}",
        f"{statistics.median(ratios):.3f}",
        f"{ratios[0]:.3f} to {ratios[-1]:.3f}",
        f"{statistics.median(p.drawing_s / p.bare_s for p in pairs):.3f}",
    ]


HEAD = ["how", "pairs", "checked GFLOP/s", "bare GFLOP/s", "checked / bare", "range", "drawing"]


def report(side: int, rows: list[list[object]], *, what_hardware: str = "") -> str:
    return f"""{result_sheet.header("Checked and bare products", what_hardware=what_hardware)}
{NUM_REPEATS} products of {side} x {side} in {PRECISION}, with one seed, through the bench and bare;
interleaved pairs, medians. One thread is timed by its CPU time, several by wall time. Target of
checked / bare: at least {TARGET}. The last column is the time of drawing and proving alone, over
that of the bare products.

{result_sheet.table(HEAD, rows)}
"""


def begin_as_a_worker() -> None:
    """Libraries read these switches when they are loaded, so the script begins anew with them."""
    if any(os.environ.get(name) != "1" for name in THREAD_SWITCHES):
        environment = os.environ | dict.fromkeys(THREAD_SWITCHES, "1")
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def main() -> None:
    args = result_sheet.arguments(__doc__).parse_args()
    begin_as_a_worker()
    side = max(32, round(SIDE * min(1.0, args.scale) ** (1 / 3)) // 32 * 32)
    num = result_sheet.scaled(NUM_PAIRS, args.scale)
    backend = open_backend("torch")
    device = backend.devices()[0]
    granted = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(granted)})
    pairs = pairs_of(backend, device, side=side, num=num, clock=time.thread_time)
    rows = [row_of("one thread, pinned", side, pairs)]
    os.sched_setaffinity(0, granted)
    if len(granted) > 1:
        torch.set_num_threads(2)
        few = max(1, num // 5)
        rows.append(row_of("two threads", side, pairs_of(backend, device, side=side, num=few)))
    result_sheet.publish(report(side, rows), what="stress", args=args)


if __name__ == "__main__":
    main()
