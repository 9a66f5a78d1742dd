# SPDX-License-Identifier: Apache-2.0
"""Everything that needs an accelerator, in one run of minutes: screening, cost of checking, digest.

For a machine with its own torch, on which nothing is installed:

    PYTHONPATH=src python3 benchmarks/gpu.py --json screening.json

Not yet run on a GPU. Exit codes: 0 all passed, 1 a test failed, 2 nothing could be judged.
"""

from __future__ import annotations

import importlib
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

NEEDED = ("numpy", "torch", "ml_dtypes", "array_api_compat")
LACKS = "lacks "
FOR_THE_COMMAND_LINE = ("click", "rich", "safetensors")

TESTS: tuple[str, ...] = ()
"""Ids and groups of tests; empty for all of level 1."""

SECONDS_EACH = 1.0
"""Seconds that each test gets after its self-test, beside its least number of rounds."""

NUM_PAIRS = 5
DIGEST_BYTES = 1 << 30
NUM_DIGESTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """What one test gave on one device."""

    test_id: str
    outcome: str = "unknown"
    num_comparisons: int = 0
    num_miscompares: int = 0
    elapsed_s: float = 0.0
    detail: str = ""
    observations: tuple[Any, ...] = ()

    @property
    def is_beyond_the_device(self) -> bool:
        return self.detail.startswith(LACKS)


def missing(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if find_spec(name) is None]


def screened(backend: Any, device: Any, peers: tuple[Any, ...]) -> Iterator[Screened]:
    """Every test of level 1, in this process and one after the other."""
    registry = importlib.import_module("truestep.screening.registry")
    for test in registry.choose(TESTS, level=1):
        lacking = [
            f"{n.op} in {n.precision}"
            for n in test.needs
            if not backend.supports(n.op, n.precision, device)
        ]
        if lacking:
            yield Screened(test_id=test.id, detail=f"{LACKS}{', '.join(lacking)}")
            continue
        start_s = time.monotonic()
        try:
            bench, is_caught = run_test(test, backend, device, peers)
        except Exception:  # noqa: BLE001  whatever a device raises is data
            yield Screened(test_id=test.id, detail=traceback.format_exc(limit=-3))
            continue
        yield Screened(
            test_id=test.id,
            outcome="fail" if bench.num_miscompares else "pass" if is_caught else "unknown",
            num_comparisons=bench.num_comparisons,
            num_miscompares=bench.num_miscompares,
            elapsed_s=time.monotonic() - start_s,
            detail="" if is_caught else "the planted fault was not found",
            observations=bench.observations(
                name=test.id, kind=test.reference, provenance=test.known_because, run_id="gpu"
            ),
        )


def run_test(test: Any, backend: Any, device: Any, peers: tuple[Any, ...]) -> tuple[Any, bool]:
    """The self-test, then rounds as a worker runs them."""
    bench_type = importlib.import_module("truestep.screening.bench").Bench
    selftest = importlib.import_module("truestep.screening.selftest")
    derive = importlib.import_module("truestep.numerics.mixing").derive

    def make_bench(used: Any) -> Any:
        return bench_type(backend=used, device=device, peers=peers, memory_bytes=1 << 28)

    is_caught = selftest.is_caught(
        test, backend=backend, device=device, unit="", seed=derive(1, 0, 1), make_bench=make_bench
    )
    bench = make_bench(backend)
    end_s = time.monotonic() + SECONDS_EACH
    number = 0
    while number < test.min_rounds or time.monotonic() < end_s:
        bench.seed = derive(1, 1, number)
        test.run(bench, bench.seed)
        number += 1
    return bench, bool(is_caught)


def stress_row(backend: Any, device: Any) -> list[object]:
    """Checked over bare products at the side that level 1 uses on an accelerator."""
    bench_stress = importlib.import_module("bench_stress")
    sides = importlib.import_module("truestep.screening.suite.stress").SIDE
    side = sides["cpu" if device.kind == "cpu" else "accelerator"][1]
    pairs = bench_stress.pairs_of(backend, device, side=side, num=NUM_PAIRS)
    row: list[object] = bench_stress.row_of(f"{device.id}, side {side}", side, pairs)
    return row


def digest_rows(backend: Any, device: Any) -> list[list[object]]:
    """Milliseconds of a digest and of `torch.sum` over the same words, on the device."""
    torch = importlib.import_module("torch")
    digest_torch = importlib.import_module("truestep.backends.digest_torch")
    number = device.id.rpartition(":")[2]
    where = "cpu" if device.kind == "cpu" else f"cuda:{number}"
    tensor = torch.randn(DIGEST_BYTES // 4, device=where)
    calls: dict[str, Callable[[], object]] = {
        "torch.sum": lambda: torch.sum(tensor).item(),
        "digest, eager": lambda: digest_torch.digest(tensor),
        "digest, compiled": lambda: digest_torch.digest(tensor, compiled=True),
    }
    rows: list[list[object]] = []
    first_ms = 0.0
    for name, call in calls.items():
        try:
            call()
        except Exception as error:  # noqa: BLE001  a missing compiler is a result, too
            rows.append([name, "-", "-", f"{type(error).__name__}"])
            continue
        backend.synchronize(device)
        times = []
        for _ in range(NUM_DIGESTS):
            start_s = time.perf_counter()
            call()
            backend.synchronize(device)
            times.append((time.perf_counter() - start_s) * 1e3)
        took_ms = median(times)
        first_ms = first_ms or took_ms
        speed = DIGEST_BYTES / took_ms / 1e6
        rows.append([name, f"{took_ms:.2f}", f"{speed:.0f}", f"{took_ms / first_ms:.2f}"])
    return rows


def report(
    device: Any, results: list[Screened], stress: list[object], digests: list[list[object]]
) -> str:
    sheet = importlib.import_module("result_sheet")
    head = importlib.import_module("bench_stress").HEAD
    rows = [
        [r.test_id, r.outcome, f"{r.num_comparisons:,}", r.num_miscompares, f"{r.elapsed_s:.1f}"]
        for r in results
    ]
    details = "\n".join(f"* {r.test_id}: {r.detail.strip()}" for r in results if r.detail)
    return f"""{sheet.header("On an accelerator", what_hardware=device.model)}
## Screening, level 1

{sheet.table(["test", "outcome", "comparisons", "miscompares", "seconds"], rows)}

{details}

## Products, checked and bare

{sheet.table(head, [stress])}

## Digest of {DIGEST_BYTES / 2**30:g} GiB

{sheet.table(["what", "ms", "GB/s", "x torch.sum"], digests)}
"""


def exit_code(results: list[Screened]) -> int:
    """A fail wins; what broke, or found no planted fault, is no pass."""
    outcomes = {r.outcome for r in results if not r.is_beyond_the_device}
    if "fail" in outcomes:
        return 1
    return 0 if outcomes == {"pass"} else 2


def main(argv: list[str] | None = None) -> int:
    gaps = missing(NEEDED)
    if gaps:
        print(f"gpu.py needs {', '.join(gaps)}, which this Python lacks: nothing was run.")
        return 2
    absent = missing(FOR_THE_COMMAND_LINE)
    if absent:
        print(f"without {', '.join(absent)} `truestep screen` cannot run here; this script can.")
    sys.path.insert(0, str(Path(__file__).parent))
    sheet = importlib.import_module("result_sheet")
    parser = sheet.arguments(__doc__)
    parser.add_argument("--json", type=Path, help="file for the screening's observations")
    parser.add_argument("--rehearse", action="store_true", help="use the processor instead")
    args = parser.parse_args(argv)
    backend = importlib.import_module("truestep.backends.open").open_backend("torch")
    devices = [d for d in backend.devices() if (d.kind == "cpu") == args.rehearse]
    if not devices:
        print("there is no accelerator that torch can use here: nothing was run.")
        return 2
    everything: list[Screened] = []
    for device in devices:
        peers = tuple(d for d in devices if d is not device)
        results = list(screened(backend, device, peers))
        everything += results
        text = report(device, results, stress_row(backend, device), digest_rows(backend, device))
        if not args.rehearse or args.output:
            sheet.publish(text, what="gpu", args=args, what_hardware=device.model)
    if args.json:
        schema = importlib.import_module("truestep.store.schema")
        observations = [schema.to_plain(o) for r in everything for o in r.observations]
        document = {"schema_version": schema.SCHEMA_VERSION, "observations": observations}
        args.json.write_text(schema.dumps(document) + "\n", encoding="utf-8")
    return exit_code(everything)


if __name__ == "__main__":
    sys.exit(main())
