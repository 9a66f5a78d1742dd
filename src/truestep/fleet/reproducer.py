# SPDX-License-Identifier: Apache-2.0
"""A program of one file that multiplies on a device and compares with exact integers.

It stands alone: Python, numpy, and torch where the device is no CPU. A copy of it goes with every
hand-off. The operands are small integers from a seed, so that every sum is exact in every order and
every correct device gives the same bits. There is no data of anybody in it.

Exit status: 0 all products were right, 1 some were wrong, 2 it could not run.
"""

import argparse
import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

SIZE = 256
LARGEST = {"float64": 1000, "float32": 15, "float16": 1, "bfloat16": 1}
"""Largest operand by element type: with 256 products a sum, every partial sum is exact."""
MOST_SHOWN = 20


def operands(seed: int, dtype: str) -> tuple[Any, Any, Any]:
    """Two matrices of integers and their product, each int64 of shape (SIZE, SIZE)."""
    draw, largest = np.random.default_rng(seed), LARGEST[dtype]
    a, b = (draw.integers(-largest, largest, (SIZE, SIZE), endpoint=True) for _ in "ab")
    return a, b, a @ b


class Multiplier:
    """Multiplies on one device: `cpu` by numpy, any other by torch."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.torch: Any = None if device == "cpu" else import_module("torch")

    def can(self, dtype: str) -> bool:
        """Whether the device multiplies this element type here."""
        return dtype in LARGEST and (self.torch is not None or dtype != "bfloat16")

    def multiply(self, a: Any, b: Any, dtype: str) -> Any:
        """The product, computed in the element type and read back as int64."""
        if self.torch is None:
            return np.rint(a.astype(dtype) @ b.astype(dtype)).astype(np.int64)
        kind = getattr(self.torch, dtype)
        x, y = (self.torch.from_numpy(m).to(self.device, kind) for m in (a, b))
        return (x @ y).to(self.torch.float64).round().to(self.torch.int64).cpu().numpy()


def differing(expected: Any, actual: Any) -> list[tuple[int, int]]:
    """Rows and columns of the wrong products."""
    return [(int(i), int(j)) for i, j in np.argwhere(expected != actual)]


def selftest() -> bool:
    """Whether one wrong product is seen."""
    _, _, expected = operands(0, "float32")
    damaged = expected.copy()
    damaged[3, 5] ^= 1 << 4
    return differing(expected, damaged) == [(3, 5)] and not differing(expected, expected)


def search(multiplier: Multiplier, dtypes: list[str], seeds: list[int], *, until_s: float) -> int:
    """Multiply again and again, each type and seed at least once; the number of wrong products."""
    cases = [(dtype, seed, *operands(seed, dtype)) for dtype in dtypes for seed in seeds]
    num_wrong = num_rounds = 0
    while num_rounds == 0 or time.monotonic() < until_s:
        for dtype, seed, a, b, expected in cases:
            actual = multiplier.multiply(a, b, dtype)
            for i, j in differing(expected, actual):
                num_wrong += 1
                if num_wrong <= MOST_SHOWN:
                    print(
                        f"wrong: round {num_rounds}, {dtype}, seed {seed}, row {i}, column {j}: "
                        f"{actual[i, j]} instead of {expected[i, j]}"
                    )
        num_rounds += 1
    print(f"{num_rounds * len(cases)} products of {SIZE}x{SIZE} matrices, {num_wrong} wrong values")
    return num_wrong


def main(arguments: list[str]) -> int:
    """Run it; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--case", type=Path, default=Path(__file__).with_name("case.json"))
    parser.add_argument("--device", default="cpu", help="cpu, or a device of torch such as cuda:0")
    parser.add_argument("--minutes", type=float, default=1.0)
    given = parser.parse_args(arguments)
    if not selftest():
        print("this program does not see a planted error here: do not trust it", file=sys.stderr)
        return 2
    try:
        case = json.loads(given.case.read_text())
        multiplier = Multiplier(given.device)
        dtypes = [dtype for dtype in case["dtypes"] if multiplier.can(dtype)]
        seeds = [int(seed) % 2**63 for seed in case["seeds"]]
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        print(f"cannot run: {error!r}", file=sys.stderr)
        return 2
    if not dtypes or not seeds:
        print(f"nothing to run on {given.device} for {case['dtypes']}", file=sys.stderr)
        return 2
    until_s = time.monotonic() + 60 * given.minutes
    return 1 if search(multiplier, dtypes, seeds, until_s=until_s) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
