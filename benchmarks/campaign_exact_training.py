# SPDX-License-Identifier: Apache-2.0
"""Is every flipped bit of an exact training found, and its step and operation named?

In each trial one bit is flipped: in the result of one product of one step, in a weight or the rest
of its master, or in a token. The trial starts from the stored masters before that step and runs
that step on a backend; the first difference to the golden is what is named.

    python benchmarks/campaign_exact_training.py
    python benchmarks/campaign_exact_training.py --scale 0.02
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import result_sheet

from truestep.backends.open import open_backend
from truestep.fault import Fault, FaultKind
from truestep.injection.faulty_backend import FaultyBackend
from truestep.judging.power import interval
from truestep.numerics.bits import flip_bit
from truestep.numerics.compare import compare
from truestep.numerics.digest import digest_words
from truestep.numerics.mixing import derive
from truestep.workloads import copy_task, exact_goldens
from truestep.workloads.exact_products import Mode, requantise, site_of
from truestep.workloads.exact_reference import ReferenceRun
from truestep.workloads.exact_sizes import SIZES, Size, bounds, initial_masters, operations
from truestep.workloads.exact_transformer import ExactTransformer

NUM_TRIALS = {"accumulator": 500, "weight": 100, "master": 100, "token": 100}
KINDS = tuple(NUM_TRIALS)
S = SIZES["S"]
MODE = Mode("fp32", "float32")
Masters = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What became of one fault.

    `is_masked`: the step's digests are all right, so the fault changed nothing that lasts.
    `is_silent`: the masters after the step are right all the same, so only accumulators show it.
    """

    kind: str
    is_named: bool
    is_located: bool
    is_masked: bool
    is_silent: bool


def states() -> list[Masters]:
    """The masters before each step."""
    before: list[Masters] = [dict(initial_masters(S))]
    before += [masters for masters, _ in ReferenceRun(S, "accumulator").steps()]
    return before[:-1]


def accumulator(step: int, masters: Masters, seed: int) -> Finding:
    """One bit of one element of one product."""
    names = tuple(bounds(S))
    operation = names[derive(seed, 1) % len(names)]
    site = site_of(operation, MODE)
    call = [n for n in names if site_of(n, MODE) == site].index(operation)
    fault = Fault(kind=FaultKind.FLIP, site=site, calls=(call, call + 1), seed=seed)
    inner = open_backend("numpy")
    faulty = FaultyBackend(inner, [fault], device=inner.devices()[0])
    shown = run_step(faulty, masters, copy_task.batch(S, step))
    _, right = ReferenceRun(S, "accumulator").step(masters, step)
    index = operations(S).index(operation)
    found = compare(shown[index], right[index])
    (hit,) = faulty.activations
    # A flipped sign of zero is the same number, and is taken away before the digest.
    is_zero = hit.is_changed and found is None
    is_located = found is not None and found.positions == (hit.index,)
    return finding("accumulator", step, shown, {operation}, is_located or is_zero)


def changed_master(kind: str, step: int, masters: Masters, seed: int) -> Finding:
    """One bit of a master: `weight` where the weight that is used changes with it."""
    names = tuple(masters)
    for attempt in range(1000):
        name = names[derive(seed, attempt, 1) % len(names)]
        index = derive(seed, attempt, 2) % masters[name].size
        flipped = flip_bit(masters[name], index=index, bit=derive(seed, attempt, 3) % 32)
        shift = S.weight_shift(name)
        used = [requantise(np, m, shift) for m in (masters[name], flipped)]
        if np.isfinite(flipped).all() and (kind == "master" or not np.array_equal(*used)):
            break
    shown = run_step(open_backend("numpy"), masters | {name: flipped}, copy_task.batch(S, step))
    return finding(kind, step, shown, {f"forward/{name}", f"update/{name}"}, True)


def token(step: int, masters: Masters, seed: int) -> Finding:
    """One token of the batch is another word."""
    batch = copy_task.batch(S, step)
    index = derive(seed, 1) % batch["tokens"].size
    words = batch["tokens"].copy()
    words[index, 0] = int(words[index, 0]) ^ (1 << derive(seed, 2) % 4)
    shown = run_step(open_backend("numpy"), masters, batch | {"tokens": words})
    return finding("token", step, shown, {"forward/table"}, True)


def run_step(backend: Any, masters: Masters, batch: Any) -> tuple[Any, ...]:
    with np.errstate(all="ignore"):
        model = ExactTransformer(backend, S, MODE)
        return model.step(masters, batch, copy_task.constants(S))[1]


GOLDEN = exact_goldens.load(S, "accumulator")


def finding(
    kind: str, step: int, shown: tuple[Any, ...], expected: set[str], is_located: bool
) -> Finding:
    digests = digest_words(open_backend("numpy").digest_many(shown))
    place = GOLDEN.first_difference(digests[None], first_step=step)
    num_products = len(bounds(S))
    is_silent = np.array_equal(digests[num_products:], GOLDEN.digests[step, num_products:])
    return Finding(
        kind=kind,
        is_named=place is not None and place.step == step and place.operation in expected,
        is_located=is_located,
        is_masked=place is None,
        is_silent=bool(is_silent),
    )


def findings(args: argparse.Namespace) -> list[Finding]:
    """All trials; the same ones every time."""
    before = states()
    run: dict[str, Callable[[int, Masters, int], Finding]] = {
        "accumulator": accumulator,
        "weight": lambda *trial: changed_master("weight", *trial),
        "master": lambda *trial: changed_master("master", *trial),
        "token": token,
    }
    found = []
    for number, kind in enumerate(KINDS):
        for trial in range(result_sheet.scaled(NUM_TRIALS[kind], args.scale)):
            seed = derive(2026, number, trial)
            step = derive(seed, 0) % S.num_steps
            found.append(run[kind](step, before[step], seed))
    return found


def row(kind: str, found: list[Finding]) -> list[object]:
    mine = [f for f in found if f.kind == kind]
    active = [f for f in mine if not f.is_masked]
    named = sum(f.is_named for f in active)
    low, _ = interval(named, len(active))
    silent = sum(f.is_silent for f in active)
    located = sum(f.is_located for f in active)
    masked = len(mine) - len(active)
    return [kind, len(mine), masked, f"{named} of {len(active)}", f"{low:.1%}", located, silent]


BACKENDS = (
    ("numpy", MODE),
    ("torch", MODE),
    ("torch", Mode("bf16", "bfloat16")),
    ("jax", MODE),
    ("jax", Mode("bf16", "float32")),
)


def cost(size: Size, name: str, mode: Mode) -> list[object]:
    """Wall and processor seconds of one training, digests included; jax is compiled first."""
    backend = open_backend(name)
    device = backend.devices()[0]

    def put(hosts: Any) -> dict[str, Any]:
        return {key: backend.put(host, device) for key, host in hosts.items()}

    step = ExactTransformer(backend, size, mode).step
    if name == "jax":
        step = backend.compile(step)
    host_digests = open_backend("numpy").digest_many
    masters, constants = put(initial_masters(size)), put(copy_task.constants(size))
    if name == "jax":
        step(masters, put(copy_task.batch(size, 0)), constants)
    wall, processor = time.perf_counter(), time.process_time()
    rows, num_bytes = [], 0
    for number in range(size.num_steps):
        masters, shown = step(masters, put(copy_task.batch(size, number)), constants)
        hosts = [backend.get(array) for array in shown]
        num_bytes = sum(host.nbytes for host in hosts)
        rows.append(digest_words(host_digests(hosts)))
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    golden = exact_goldens.load(size, mode.value_class)
    place = golden.first_difference(np.stack(rows))
    how = f"{name} {mode.precision} to {mode.out}"
    digested = f"{num_bytes / 1e6:.1f} MB"
    cells = [size.name, how, f"{wall:.1f}", f"{processor:.1f}", f"{wall / size.num_steps:.3f}"]
    return [*cells, digested, "equal" if place is None else str(place)]


def sizes_table() -> str:
    rows = [
        [
            size.name,
            f"{size.num_layers} x {size.width}, {size.num_heads} heads",
            sum(master.size for master in initial_masters(size).values()),
            size.num_tokens,
            size.num_steps,
            len(operations(size)) * size.num_steps,
            f"{exact_goldens.load(size, 'accumulator').digests.nbytes / 1e3:.0f} kB",
        ]
        for size in SIZES.values()
    ]
    head = ("size", "layers", "weights", "tokens a step", "steps", "digests", "golden")
    return result_sheet.table(head, rows)


def main() -> None:
    parser = result_sheet.arguments(__doc__)
    parser.add_argument("--costs", default="S", help="sizes whose cost is measured, such as SML")
    args = parser.parse_args()
    found = findings(args)
    head = ("flipped in", "trials", "masked", "named", "at least (95 %)", "located", "silent")
    costs = [cost(SIZES[name], *how) for name in args.costs for how in BACKENDS]
    cost_head = ("size", "how", "wall s", "CPU s", "s a step", "digested a step", "golden")
    text = f"""{result_sheet.header("Exact training")}
One flipped bit a trial, size S, fp32 on numpy. Masked: every digest of the step is right, so
nothing lasts (a sign of zero, a bit below what rounding keeps). Named: step and operation of the
first difference are those of the fault. Located: position of the flipped element too (for what is
no accumulator, not asked). Silent: the masters after the step are right, so that only the digests
of accumulators show the fault.

{result_sheet.table(head, [row(kind, found) for kind in KINDS])}

## Sizes

{sizes_table()}

## Cost

One training with all digests made on the host; `jax` compiled before.

{result_sheet.table(cost_head, costs)}
"""
    result_sheet.publish(text, what="exact_training", args=args)


if __name__ == "__main__":
    main()
