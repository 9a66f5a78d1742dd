# SPDX-License-Identifier: Apache-2.0
"""How often does a sound machine look bad? All tests in rotation, with fresh seeds.

python benchmarks/campaign_clean.py
python benchmarks/campaign_clean.py --scale 0.02
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import result_sheet
import torch

from truestep.backends.open import open_backend
from truestep.judging.power import excluded_rate, interval
from truestep.numerics.mixing import derive
from truestep.screening import registry, selftest
from truestep.screening.bench import Bench
from truestep.screening.spec import Level, ScreeningTest

NUM_EXECUTIONS = 1_000
NUM_COMPARISONS = 1_000_000

COMPARISONS_EACH = 1_200
"""Comparisons of one execution."""

MOST_ROUNDS = {"stress": 2, "memory": 4, "copy": 40}
"""Slow tests, by the first word of the id, stop earlier."""


@dataclass(slots=True)
class Tally:
    """What all executions gave together."""

    executions: Counter[str] = field(default_factory=Counter)
    comparisons: Counter[str] = field(default_factory=Counter)
    alarms: Counter[str] = field(default_factory=Counter)
    details: list[str] = field(default_factory=list)
    num_planted: int = 0
    num_caught: int = 0


def campaign(*, num_executions: int, num_comparisons: int, each: int = COMPARISONS_EACH) -> Tally:
    """Run every test that this machine can run in turn, until both numbers are reached.

    Every test runs at least once, and first has to find a planted fault.
    """
    backend = open_backend("torch")
    device = backend.devices()[0]
    make_bench = partial(Bench, device=device, memory_bytes=1 << 23)
    tests = [
        t
        for t in registry.choose((), level=Level.QUICK)
        if all(backend.supports(n.op, n.precision, device) for n in t.needs)
    ]
    tally = Tally()
    number = 0
    while number < max(num_executions, len(tests)) or tally.comparisons.total() < num_comparisons:
        test = tests[number % len(tests)]
        if number < len(tests):
            tally.num_planted += 1
            tally.num_caught += selftest.is_caught(
                test,
                backend=backend,
                device=device,
                unit="",
                seed=derive(number, 0),
                make_bench=lambda faulty: make_bench(backend=faulty),
            )
        execute(test, make_bench(backend=backend), number, tally, each)
        number += 1
    return tally


def execute(test: ScreeningTest, bench: Bench, number: int, tally: Tally, each: int) -> None:
    """One execution of at least `each` comparisons, with seeds that no other has."""
    most = MOST_ROUNDS.get(test.id.split("_")[0])
    for i in count():
        if bench.num_comparisons >= each or i == most:
            break
        bench.seed = derive(number, 1, i)
        test.run(bench, bench.seed)
    tally.executions[test.id] += 1
    tally.comparisons[test.id] += bench.num_comparisons
    tally.alarms[test.id] += bench.num_miscompares
    tally.details += [f"{test.id} {f.site} seed {f.seed}" for f in bench.failures]


def report(tally: Tally) -> str:
    executions, comparisons = tally.executions.total(), tally.comparisons.total()
    alarms = tally.alarms.total()
    rows: Sequence[Sequence[object]] = [
        [name, num, f"{tally.comparisons[name]:,}", tally.alarms[name]]
        for name, num in tally.executions.items()
    ]
    details = "\n".join(f"* {line}" for line in tally.details)
    return (
        f"""{result_sheet.header("False alarms on a sound machine")}
{executions:,} executions of single tests in rotation, each with seeds of its own:
{comparisons:,} comparisons, each of one whole result. A fault planted in each test beforehand was
found by {tally.num_caught} of {tally.num_planted}.

* False alarms: {alarms}.
* Rate of false alarms, upper end of the 95 % Clopper-Pearson interval: below
  {interval(alarms, comparisons)[1]:.2e} a comparison, {interval(alarms, executions)[1]:.2e} an
  execution. One-sided, with none seen: {excluded_rate(comparisons):.2e} and
  {excluded_rate(executions):.2e}.

{result_sheet.table(["test", "executions", "comparisons", "false alarms"], rows)}

{details}
""".rstrip()
        + "\n"
    )


def main() -> None:
    args = result_sheet.arguments(__doc__).parse_args()
    torch.set_num_threads(1)
    tally = campaign(
        num_executions=result_sheet.scaled(NUM_EXECUTIONS, args.scale),
        num_comparisons=result_sheet.scaled(NUM_COMPARISONS, args.scale),
    )
    result_sheet.publish(report(tally), what="false-alarms", args=args)


if __name__ == "__main__":
    main()
