# SPDX-License-Identifier: Apache-2.0
"""How long do decisions and the status of a large fleet take, and how much memory?

Simulated nodes, each screened once by an issued run of 25 tests with 20 observations a test; one
node in 200 fails one of them. Then, in a process of its own for each: what a campaign would do
(dry run, evidence of all nodes read anew), and the status query again and again.

    python benchmarks/bench_fleet.py [--db postgresql://...]
    python benchmarks/bench_fleet.py --scale 0.02
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import result_sheet

from truestep.cli.fleet.status import document_of
from truestep.device import Device, Node
from truestep.environment import Environment
from truestep.fleet.campaign import Controller
from truestep.fleet.carry_out import Hands
from truestep.fleet.job import JobMaker
from truestep.fleet.life_cycle import step
from truestep.fleet.plan import Options
from truestep.fleet.policy import Occasion
from truestep.fleet.runs import Runs
from truestep.fleet.scheduler import NodeInfo
from truestep.observation import Observation, Party
from truestep.reason import Reason
from truestep.record import Record, RecordKind
from truestep.reference import Reference, ReferenceKind
from truestep.store.history import History
from truestep.store.history.entry import Entry, Run, RunStatus
from truestep.store.history.names import NameMap, NodeNames
from truestep.transition import NodeState
from truestep.verdict import Outcome, Scope, Status, Suspect, Verdict

NUM_NODES = 20_000
NUM_TESTS = 25
NUM_OBSERVATIONS = 20
NUM_STATUS = 200
ONE_IN = 200
START_S = 1_780_000_000.0
NOW_S = START_S + 86_400.0
HEAD = ("database", "nodes", "observations", "quantity", "measured", "target")


class Idle:
    """A scheduler on which all nodes are free."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def nodes(self) -> Mapping[str, NodeInfo]:
        return {name: NodeInfo(name=name, is_idle=True) for name in self.names}


def load(url: str, num_nodes: int) -> float:
    """Fill a new history; seconds that taking in the records took."""
    names = NameMap(nodes=tuple(NodeNames(name=f"n{n}", serial=f"S{n}") for n in range(num_nodes)))
    with History.create(url, is_simulation=True) as history:
        history.map_nodes(names, now_s=START_S)
        entries = [history.find(f"n{number}") for number in range(num_nodes)]
        for number, entry in enumerate(entries):
            began = step(entry, NodeState.SCREENING, Reason.SCREENING_DUE, now_s=START_S)
            history.issue(run_of(number, entry), began)
        begun = time.perf_counter()
        history.fold((r for n in range(num_nodes) for r in records_of(n)), source="load")
        seconds = time.perf_counter() - begun
        for number, entry in enumerate(entries):
            is_bad = number % ONE_IN == 0
            to = NodeState.SUSPECT if is_bad else NodeState.AVAILABLE
            why = Reason.MISCOMPARE_REPEATED if is_bad else Reason.PASSED
            screened = replace(entry, state=NodeState.SCREENING)
            done = step(screened, to, why, now_s=START_S + 2)
            history.close_run(f"run-{number}", RunStatus.FOLDED, done)
    return seconds


def run_of(number: int, entry: Entry) -> Run:
    return Run(
        id=f"run-{number}",
        key=entry.key,
        name=entry.name,
        campaign="load",
        occasion="install",
        level=1,
        issued_s=START_S,
        start_by_s=START_S + 1,
        limit_s=1.0,
        status=RunStatus.ISSUED,
    )


def records_of(number: int) -> Iterator[Record]:
    """What one run found on one node."""
    environment = Environment(entries={"driver": "570.1", "torch": "2.13.0"})
    device = Device(id="cuda:0", kind="cuda", model="H200", serial=f"G{number}")
    for test in range(NUM_TESTS):
        is_bad = number % ONE_IN == 0 and test == 0
        yield Record(
            id=f"r-{number}-{test}",
            kind=RecordKind.SCREENING,
            run_id=f"run-{number}",
            time_s=START_S + 1,
            subject=f"test{test}",
            node=Node(name=f"n{number}"),
            device=device,
            environment=environment,
            observations=observations(number, test),
            verdict=Verdict(
                outcome=Outcome.FAIL if is_bad else Outcome.PASS,
                status=Status.COMPLETE,
                reason=Reason.MISCOMPARE_REPEATED if is_bad else Reason.PASSED,
                num_comparisons=10,
                selftest_caught=True,
                is_confirmed=is_bad,
                repeats=(5, 5) if is_bad else (0, 0),
                suspect=Suspect(scope=Scope.DEVICE, name="cuda:0") if is_bad else None,
            ),
            is_simulated=True,
        )


def observations(number: int, test: int) -> tuple[Observation, ...]:
    return tuple(
        Observation(
            name=f"test{test}",
            reference=Reference(kind=ReferenceKind.EXACT, provenance="integers"),
            parties=(Party(device="cuda:0"),),
            site=f"site{i}",
            num_comparisons=1000,
            seed=number * 1000 + i,
            step=i,
            run_id=f"run-{number}",
        )
        for i in range(NUM_OBSERVATIONS)
    )


def decide(url: str) -> dict[str, float]:
    """One dry look of a campaign over all nodes."""
    with History.open(url) as history:
        scheduler = Idle([entry.name for entry in history.entries()])
        options = Options(id="look", occasion=Occasion.RECLAIM)
        hands = Hands(
            history=history, scheduler=scheduler, publish=lambda *_: None, tell=lambda _: None
        )
        runs = Runs(
            history=history, scheduler=scheduler, jobs=JobMaker(results=Path()), options=options
        )
        controller = Controller(
            history=history, scheduler=scheduler, runs=runs, hands=hands, options=options
        )
        begun, cpu = time.perf_counter(), time.process_time()
        done = controller.look(now_s=NOW_S)
        seconds, cpu_s = time.perf_counter() - begun, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    num = len(done.plan.screenings) + len(done.plan.waiting) + len(done.plan.actions)
    return {"seconds": seconds, "cpu_s": cpu_s, "peak_gib": peak, "num_considered": num}


def ask(url: str) -> dict[str, float]:
    """The status again and again."""
    times = []
    with History.open(url) as history:
        for _ in range(NUM_STATUS):
            begun = time.perf_counter()
            document_of(history, NOW_S)
            times.append(time.perf_counter() - begun)
    p95 = statistics.quantiles(times, n=20)[-1]
    return {"median_ms": 1e3 * statistics.median(times), "p95_ms": 1e3 * p95}


def apart(what: str, url: str) -> dict[str, float]:
    """A measurement in a process of its own, so that its memory is its own; one core."""
    command = [sys.executable, __file__, "--measure", what, "--db", url]
    core = {min(os.sched_getaffinity(0))}
    out = subprocess.run(
        command, check=True, capture_output=True, preexec_fn=lambda: os.sched_setaffinity(0, core)
    ).stdout
    found: dict[str, float] = json.loads(out)
    return found


def rows_of(url: str, num_nodes: int, loaded_s: float) -> list[list[object]]:
    kind = url.partition(":")[0]
    decided, asked = apart("decide", url), apart("ask", url)
    num = num_nodes * NUM_TESTS * NUM_OBSERVATIONS
    found = [
        ("decisions of a campaign, one core", f"{decided['seconds']:.1f} s", "60 s"),
        ("peak memory while deciding", f"{decided['peak_gib']:.2f} GiB", "1 GB"),
        ("status query, median", f"{asked['median_ms']:.1f} ms", ""),
        ("status query, p95", f"{asked['p95_ms']:.1f} ms", "50 ms"),
        ("taking in all records", f"{num_nodes * NUM_TESTS / loaded_s:.0f} records/s", ""),
    ]
    return [[kind, num_nodes, num, *row] for row in found]


def report(rows: list[list[object]]) -> str:
    return f"""{result_sheet.header("A large fleet")}
Simulated nodes, each screened once by an issued run of {NUM_TESTS} tests with {NUM_OBSERVATIONS}
observations a test; one node in {ONE_IN} fails. Each measurement in a process of its own.

{result_sheet.table(HEAD, rows)}
"""


def main() -> None:
    parser = result_sheet.arguments(__doc__)
    parser.add_argument("--db", help="a database to use as well, empty; SQLite is always used")
    parser.add_argument("--measure", choices=("decide", "ask"), help="used by itself")
    args = parser.parse_args()
    if args.measure:
        print(json.dumps({"decide": decide, "ask": ask}[args.measure](args.db)))
        return
    num_nodes = result_sheet.scaled(NUM_NODES, args.scale)
    with tempfile.TemporaryDirectory() as folder:
        urls = [f"sqlite:///{folder}/history.db", *([args.db] if args.db else [])]
        with ProcessPoolExecutor(len(urls)) as pool:
            loaded = list(pool.map(load, urls, [num_nodes] * len(urls)))
        rows = [r for u, s in zip(urls, loaded, strict=True) for r in rows_of(u, num_nodes, s)]
    result_sheet.publish(report(rows), what="fleet", args=args)


if __name__ == "__main__":
    main()
