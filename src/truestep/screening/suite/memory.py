# SPDX-License-Identifier: Apache-2.0
"""Memory: patterns, addresses as data, moving inversions, over the share that is granted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from truestep.backends.protocol import Array
from truestep.numerics.inputs import random_words
from truestep.numerics.mixing import derive, signed
from truestep.reference import ReferenceKind
from truestep.screening.bench import Bench
from truestep.screening.spec import Level, Need, ScreeningTest

BLOCK_WORDS = 1 << 19
"""4 MiB: larger than most second-level caches, so that a check reads memory."""

PATTERNS = {
    "zeros": 0,
    "ones": -1,
    "checkerboard": 0x5555555555555555,
    "inverse_checkerboard": signed(0xAAAAAAAAAAAAAAAA),
}


def _num_blocks(bench: Bench) -> int:
    return max(2, bench.memory_bytes // (BLOCK_WORDS * 8))


def _write(bench: Bench, source: Array, site: str, into: Array | None = None) -> Array:
    return bench.backend.copy(source, bench.device, site=site, into=into)


def _check(bench: Bench, actual: Array, expected: Array, site: str, pattern: str) -> None:
    covered = f"{_num_blocks(bench) * BLOCK_WORDS * 8 / 2**20:.0f} MiB in each round"
    bench.check(
        actual,
        expected,
        site=site,
        value_class="blocks",
        coverage={"bytes": covered, "pattern": pattern},
    )


def _patterns(bench: Bench, seed: int) -> None:
    """Fill all blocks with one pattern, then read them all back."""
    names = [*PATTERNS, "walking_one", "random"]
    name = names[derive(seed, 1) % len(names)]
    if name == "random":
        host = random_words(np, BLOCK_WORDS, seed=derive(seed, 2))
    elif name == "walking_one":
        host = np.int64(1) << (np.arange(BLOCK_WORDS, dtype=np.int64) + derive(seed, 2) % 64) % 64
    else:
        host = np.full(BLOCK_WORDS, PATTERNS[name], dtype=np.int64)
    pattern = bench.put(host)
    blocks = [_write(bench, pattern, "memory/pattern") for _ in range(_num_blocks(bench))]
    for block in blocks:
        _check(bench, block, pattern, "memory/pattern", name)


def _addresses(bench: Bench, seed: int) -> None:
    """Write to every word its own address, then read them all back."""
    base = np.arange(BLOCK_WORDS, dtype=np.int64) + derive(seed, 1) % (1 << 40)
    starts = range(0, _num_blocks(bench) * BLOCK_WORDS, BLOCK_WORDS)
    blocks = [_write(bench, bench.put(base + start), "memory/address") for start in starts]
    for start, block in zip(starts, blocks, strict=True):
        _check(bench, block, bench.put(base + start), "memory/address", "address")


def _inversions(bench: Bench, seed: int) -> None:
    """Upwards check and invert every block, then downwards back again."""
    site = "memory/inversion"
    pattern = bench.put(random_words(np, BLOCK_WORDS, seed=derive(seed, 1)))
    inverse = bench.put(~bench.backend.get(pattern))
    blocks = [_write(bench, pattern, site) for _ in range(_num_blocks(bench))]
    for i, block in enumerate(blocks):
        _check(bench, block, pattern, site, "moving_inversions")
        blocks[i] = _write(bench, inverse, site, into=block)
    for i in reversed(range(len(blocks))):
        _check(bench, blocks[i], inverse, site, "moving_inversions")
        blocks[i] = _write(bench, pattern, site, into=blocks[i])
    for block in blocks:
        _check(bench, block, pattern, site, "moving_inversions")


def _memory(variant: str, run: Callable[[Bench, int], None], blind_to: str) -> ScreeningTest:
    return ScreeningTest(
        id=f"memory_{variant}",
        level=Level.QUICK,
        groups=("memory",),
        stresses="memory cells, address lines and the paths between memory and core",
        known_because="what is read must be what was written",
        blind_to=blind_to,
        reference=ReferenceKind.EXACT,
        needs=(Need(op="copy", precision="int64"),),
        run=run,
        min_rounds=1,
    )


TESTS = (
    _memory("patterns", _patterns, "memory that was not granted; faults that fade in minutes"),
    _memory("addresses", _addresses, "memory that was not granted; faults of single patterns"),
    _memory("inversions", _inversions, "memory that was not granted; faults of row hammering"),
)
