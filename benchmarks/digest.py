# SPDX-License-Identifier: Apache-2.0
"""Measures the digest: cost beside `torch.sum`, many small tensors, and what each checksum misses.

    python benchmarks/digest.py                # full scale, writes benchmarks/results/
    python benchmarks/digest.py --scale 0.01 --output /tmp

Costs are thread CPU times with one thread, medians of interleaved calls; the cold start is apart.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import truestep
from truestep.backends import digest_native, digest_numpy, digest_torch
from truestep.numerics import digest

PAIRS = 7
ELEMENTS = 4096
Table = list[list[str]]


def cpu_ms(call: Callable[[], object]) -> float:
    start = time.thread_time()
    call()
    return (time.thread_time() - start) * 1e3


def interleaved(calls: dict[str, Callable[[], object]], pairs: int) -> dict[str, list[float]]:
    for call in calls.values():
        call()
    rounds = [{name: cpu_ms(call) for name, call in calls.items()} for _ in range(pairs)]
    return {name: [r[name] for r in rounds] for name in calls}


def by_rows(words: torch.Tensor, *, compiled: bool) -> digest.Sums:
    # The code of accelerators: on a CPU the public functions use numpy or C instead.
    return digest_torch._sums_by_rows(words, offset=0, compiled=compiled)  # noqa: SLF001


def wall_s(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def cost(num_bytes: int, pairs: int) -> tuple[Table, dict[str, float]]:
    tensor = torch.randn(num_bytes // 4)
    words = digest_torch.words(tensor)
    cold_s = {
        "C": wall_s(digest_native.is_available),
        "torch.compile": wall_s(lambda: by_rows(words[: 1 << 16], compiled=True)),
    }
    assert digest_native.is_available(), "a C compiler is needed to measure the compiled digest"
    assert by_rows(words, compiled=True) == digest_torch.lane_sums(words)
    assert digest_torch.digest(tensor, compiled=True) == digest_torch.digest(tensor)
    calls: dict[str, Callable[[], object]] = {
        "torch.sum": lambda: torch.sum(tensor),
        "compiled (C)": lambda: digest_torch.digest(tensor, compiled=True),
        "torch.compile": lambda: by_rows(words, compiled=True),
        "numpy kernel (no compiler)": lambda: digest_numpy.digest(tensor.numpy()),
        "torch eager, blocks of 256 KiB": lambda: by_rows(words, compiled=False),
        "torch.hash_tensor": lambda: torch.hash_tensor(tensor),
        "int64 sum": words.sum,
    }
    times = interleaved(calls, pairs)
    sums = times["torch.sum"]
    targets = {"compiled (C)": "3", "torch.compile": "3", "numpy kernel (no compiler)": "15"}
    rows = []
    for name, values in times.items():
        ratio = statistics.median(v / s for v, s in zip(values, sums, strict=True))
        middle = statistics.median(values)
        speed = f"{num_bytes / middle / 1e6:.1f}"
        rows.append([name, f"{middle:.2f}", speed, f"{ratio:.2f}", targets.get(name, "")])
    return rows, cold_s


def many(num_tensors: int, tensor_bytes: int, pairs: int) -> Table:
    tensors = [torch.randn(tensor_bytes // 4) for _ in range(num_tensors)]
    one = torch.cat(tensors)
    rows = []
    for compiled in (False, True):
        times = interleaved(
            {
                "many": lambda c=compiled: digest_torch.digest_many(tensors, compiled=c),
                "one": lambda c=compiled: digest_torch.digest(one, compiled=c),
            },
            pairs,
        )
        pairs_of = zip(times["many"], times["one"], strict=True)
        ratio = statistics.median(m / o for m, o in pairs_of)
        middle = [f"{statistics.median(times[name]):.2f}" for name in ("many", "one")]
        rows.append(["compiled" if compiled else "no compiler", *middle, f"{ratio:.2f}", "2"])
    return rows


Corruption = Callable[[np.ndarray, np.random.Generator], None]


def flip(array: np.ndarray, rng: np.random.Generator, count: int, bit: int, width: int) -> None:
    view = array.view(f"u{width // 8}")
    view[rng.choice(view.size, count, replace=False)] ^= view.dtype.type(1 << bit)


def flips(count: int, bit: int | None, width: int = 32) -> Corruption:
    def corrupt(array: np.ndarray, rng: np.random.Generator) -> None:
        flip(array, rng, count, int(rng.integers(width)) if bit is None else bit, width)

    return corrupt


def swap(span: int) -> Corruption:
    def corrupt(array: np.ndarray, rng: np.random.Generator) -> None:
        rows = array.reshape(-1, span)
        i, j = rng.choice(len(rows), 2, replace=False)
        rows[[i, j]] = rows[[j, i]]

    return corrupt


def permute(array: np.ndarray, rng: np.random.Generator) -> None:
    array[:] = rng.permutation(array)


def roll(by: int) -> Corruption:
    return lambda array, _: array.__setitem__(slice(None), np.roll(array, by))


def zero(shape: tuple[slice, slice]) -> Corruption:
    return lambda array, _: array.reshape(64, 64).__setitem__(shape, 0.0)


def zero_run(array: np.ndarray, rng: np.random.Generator) -> None:
    start = int(rng.integers(0, array.size - 4))
    array[start : start + 4] = 0.0


CORRUPTIONS: dict[str, Corruption] = {
    **{f"2 flips of bit {b} of 64": flips(2, b, 64) for b in range(64)},
    "1 flip": flips(1, None),
    "2 flips, same bit": flips(2, None),
    "4 flips, same bit": flips(4, None),
    "2 sign flips": flips(2, 31),
    "4 sign flips": flips(4, 31),
    "swap 2 elements": swap(1),
    "swap 2 words": swap(2),
    "swap 2 rows": swap(64),
    "permutation": permute,
    "roll by 2": roll(2),
    "row zeroed": zero(np.s_[7:8, :]),
    "2 rows zeroed": zero(np.s_[7:9, :]),
    "8 x 8 tile zeroed": zero(np.s_[8:16, 8:16]),
    "run of 4 zeroed": zero_run,
    "every 16th zeroed": zero(np.s_[:, ::16]),
}

CHECKSUMS: dict[str, Callable[[np.ndarray], object]] = {
    "digest": digest_numpy.digest,
    "lane 1": lambda a: digest_numpy.lane_sums(digest.host_words(a))[0],
    "lane 2": lambda a: digest_numpy.lane_sums(digest.host_words(a))[1],
    "torch.hash_tensor": lambda a: torch.hash_tensor(torch.from_numpy(a)).item(),
    "int64 sum": lambda a: int(a.view(np.int64).sum()),
    "int64 xor": lambda a: int(np.bitwise_xor.reduce(a.view(np.int64))),
}


def misses(trials: int) -> Table:
    """Share of corruptions not seen; the 64 lanes of a word are shown as their worst."""
    shares: dict[str, list[float]] = {}
    for name, corrupt in CORRUPTIONS.items():
        rng = np.random.default_rng(len(name))
        missed = dict.fromkeys(CHECKSUMS, 0)
        num_changed = 0
        for _ in range(trials):
            # Rows repeat, as equal blocks of weights and padding do.
            clean = np.tile(rng.standard_normal(ELEMENTS // 2, dtype=np.float32), 2)
            dirty = clean.copy()
            corrupt(dirty, rng)
            if np.array_equal(clean.view(np.int32), dirty.view(np.int32)):
                continue
            num_changed += 1
            for label, checksum in CHECKSUMS.items():
                missed[label] += checksum(clean) == checksum(dirty)
        shares[name] = [count / max(num_changed, 1) for count in missed.values()]
    lanes = [shares.pop(name) for name in list(shares) if name.endswith("of 64")]
    worst = [max(column) for column in zip(*lanes, strict=True)]
    table = {"2 flips, same bit of a word: worst of 64 bits": worst, **shares}
    return [[name, *(f"{share:.3g}" for share in row)] for name, row in table.items()]


def hardware() -> str:
    found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return (found[1].strip() if found else platform.machine()) + f", {os.cpu_count()} cores"


def markdown(head: list[str], rows: Table) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def report(scale: float) -> str:
    num_bytes = max(1 << 20, int((1 << 28) * scale) // 8 * 8)
    num_tensors, trials = max(8, int(1000 * scale)), max(2, int(200 * scale))
    costs, cold_s = cost(num_bytes, PAIRS)
    cost_head = ["what", "CPU ms", "GB/s", "x torch.sum", "target, at most"]
    many_head = ["how", "many, CPU ms", "one, CPU ms", "ratio", "target, at most"]
    return f"""# Digest

Command: `python benchmarks/digest.py --scale {scale:g}`
Hardware: {hardware()}. Date: {dt.datetime.now(dt.UTC):%Y-%m-%d}. Load average at the
start of the last part: {os.getloadavg()[0]:.1f}.
Versions: truestep {truestep.__version__}, Python {platform.python_version()},
numpy {np.__version__}, torch {torch.__version__} (ISA {torch.backends.cpu.get_cpu_capability()}).

One thread, thread CPU time, medians of {PAIRS} interleaved calls; a ratio is the median of the
pairs' ratios. All ways gave the same digest.

## Cost of {num_bytes / 2**20:g} MiB fp32

{markdown(cost_head, costs)}

Cold start, wall: C {cold_s["C"]:.2f} s, torch.compile {cold_s["torch.compile"]:.1f} s (less with a
warm cache on disk).

## {num_tensors} tensors of 64 KiB beside one tensor of the same bytes

{markdown(many_head, many(num_tensors, 1 << 16, PAIRS))}

## Misses

Share of corruptions not seen, of {trials} trials each (those that changed no bit left out), on
{ELEMENTS} fp32 elements whose second half repeats the first. Rates too small for trials are
measured by `benchmarks/digest_quality.py`.

{markdown(["corruption", *CHECKSUMS], misses(trials))}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="shrinks sizes and trials")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    torch.set_num_threads(1)
    # Only the eager code of accelerators uses this; temporaries of 64 MiB would leave the cache.
    digest_torch.BLOCK_BYTES = 1 << 18
    text = report(args.scale)
    slug = re.sub(r"[^a-z0-9]+", "-", hardware().lower()).strip("-")
    path = args.output / f"digest_{slug}_{dt.datetime.now(dt.UTC):%Y%m}.md"
    path.write_text(text, encoding="utf-8")
    print(text)
    print(f"written to {path}")


if __name__ == "__main__":
    main()
