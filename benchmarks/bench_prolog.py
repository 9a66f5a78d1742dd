# SPDX-License-Identifier: Apache-2.0
"""What does the prolog cost a job? Its wall time beside that of a bash script that does nothing.

python benchmarks/bench_prolog.py
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import result_sheet

from truestep.fleet.node_verdict import NodeVerdict
from truestep.verdict import Outcome

SCRIPT = Path(__file__).parents[1] / "deploy" / "slurm" / "truestep-check.sh"
NUM_PAIRS = 500
HEAD = ("script", "runs", "median", "p95", "target of p95")


def took_ms(script: Path, environment: dict[str, str], must_end_with: int) -> float:
    begun = time.perf_counter()
    ended = subprocess.run([str(script)], env=environment, capture_output=True, check=False)
    took = 1e3 * (time.perf_counter() - begun)
    if ended.returncode != must_end_with:
        raise SystemExit(f"{script.name} must end with {must_end_with}, got {ended.returncode}")
    return took


def cache_of(folder: Path) -> Path:
    """A node's cache with a fail in it, as the epilog leaves it."""
    now_s = int(time.time())
    verdict = NodeVerdict(
        node="n1",
        outcome=Outcome.FAIL,
        reason="retest_failed",
        serial=1,
        issued_s=now_s,
        expires_s=now_s + 3600,
    )
    cache = folder / "verdict"
    cache.write_bytes(verdict.line)
    return cache


def row(name: str, times: list[float], target: str) -> list[object]:
    p95 = statistics.quantiles(times, n=20)[-1]
    return [name, len(times), f"{statistics.median(times):.2f} ms", f"{p95:.2f} ms", target]


def main() -> None:
    args = result_sheet.arguments(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        idle = folder / "idle.sh"
        idle.write_text("#!/bin/bash\nexit 0\n")
        idle.chmod(0o755)
        conf = folder / "node.conf"
        conf.write_text(f"cache={cache_of(folder)}\n")
        environment = {
            "PATH": os.environ["PATH"],
            "SLURMD_NODENAME": "n1",
            "TRUESTEP_NODE_CONF": str(conf),
        }
        ours, bare = [], []
        for _ in range(result_sheet.scaled(NUM_PAIRS, args.scale) + 1):
            ours.append(took_ms(SCRIPT, environment, 1))
            bare.append(took_ms(idle, environment, 0))
    rows = [row("prolog, a fail in the cache", ours, "100 ms"), row("empty script", bare, "")]
    sheet = f"""{result_sheet.header("The prolog")}
Interleaved, wall time, fork and start of bash included.

{result_sheet.table(HEAD, rows)}
"""
    result_sheet.publish(sheet, what="prolog", args=args)


if __name__ == "__main__":
    main()
