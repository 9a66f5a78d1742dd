# SPDX-License-Identifier: Apache-2.0
"""Tests that misbehave as tests on faulty devices do, so that the runner can be rehearsed.

They belong to no level and no group and are not listed: only the exact id reaches them.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import numpy as np

from truestep.reference import ReferenceKind
from truestep.screening.bench import Bench
from truestep.screening.request import EXERCISE
from truestep.screening.spec import Level, Need, ScreeningTest

Round = Callable[[Bench, int], None]


def _sound(bench: Bench, seed: int) -> None:
    """One sum whose result is known."""
    x = bench.put(np.arange(64, dtype=np.int64) + seed % 1024)
    y = bench.put(np.ones(64, dtype=np.int64))
    expected = bench.put(np.arange(1, 65, dtype=np.int64) + seed % 1024)
    for _ in range(4):
        total = bench.backend.elementwise("add", x, y, site="add/int64")
        bench.check(total, expected, site="add/int64", value_class="wrapping")


def _exit(bench: Bench, seed: int) -> None:
    del bench, seed
    os._exit(9)


def _segfault(bench: Bench, seed: int) -> None:
    del bench, seed
    os.kill(os.getpid(), signal.SIGSEGV)


def _raise(bench: Bench, seed: int) -> None:
    del bench, seed
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def _hang(bench: Bench, seed: int) -> None:
    """Sleep, deaf to every signal that can be ignored."""
    del bench, seed
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(3600)


def _out_of_memory(bench: Bench, seed: int) -> None:
    del bench, seed
    np.empty(1 << 60, dtype=np.int8)


def _silent(bench: Bench, seed: int) -> None:
    """Work without a comparison."""
    del bench, seed


def _slow(bench: Bench, seed: int) -> None:
    """A round that takes long enough to be interrupted between two."""
    _sound(bench, seed)
    time.sleep(0.05)


def _wrong(bench: Bench, seed: int) -> None:
    """A sum that is wrong everywhere and always."""
    _sound(bench, seed)
    x = bench.put(np.arange(64, dtype=np.int64))
    bench.check(x, bench.put(np.arange(64, dtype=np.int64) + 1), site="add/int64")
    time.sleep(0.05)


def _wrong_then(end: Round) -> Round:
    """A wrong sum, then the end, but not while a fault is planted in the first round."""

    def run(bench: Bench, seed: int) -> None:
        if bench.num_comparisons:
            end(bench, seed)
        _wrong(bench, seed)

    return run


def _exercise(name: str, run: Round, *needs: Need) -> ScreeningTest:
    return ScreeningTest(
        id=f"{EXERCISE}{name}",
        level=Level.EXTENDED,
        groups=(),
        stresses="nothing: it rehearses the runner",
        known_because="integers are counted",
        blind_to="everything",
        reference=ReferenceKind.EXACT,
        needs=needs,
        run=run,
        min_rounds=2,
    )


TESTS = (
    _exercise("sound", _sound),
    _exercise("slow", _slow),
    _exercise("wrong", _wrong),
    _exercise("exit", _exit),
    _exercise("segfault", _segfault),
    _exercise("raise", _raise),
    _exercise("hang", _hang),
    _exercise("out_of_memory", _out_of_memory),
    _exercise("silent", _silent),
    _exercise("wrong_then_exit", _wrong_then(_exit)),
    _exercise("wrong_then_raise", _wrong_then(_raise)),
    _exercise("wrong_then_hang", _wrong_then(_hang)),
    _exercise("impossible", _sound, Need(op="matmul", precision="fp1")),
)
