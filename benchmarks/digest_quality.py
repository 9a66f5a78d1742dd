# SPDX-License-Identifier: Apache-2.0
"""How often two changes cancel in a lane of the digest, for the second lane's candidates.

Two questions, each answered over `2**exponent x 2**exponent` pairs of differences:

* Marginal: one bit is flipped in two words. How often does the sum of a lane stay the same?
* Joint: the changes are chosen so that lane 1 stays the same. How often does lane 2 stay, too?

    python benchmarks/digest_quality.py --exponent 19
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
K1, K2, K3 = (np.uint64(k) for k in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
K4, K5 = np.uint64(0xD1342543DE82EF95), np.uint64(0xDA942042E4DD58B5)
MOD = 1 << 64


def shift_mix(x: U64, by: int) -> U64:
    return x ^ (x >> np.uint64(by))


def unshift(x: U64, by: int) -> U64:
    out = x.copy()
    for _ in range(64 // by):
        out = x ^ (out >> np.uint64(by))
    return out


def to_q(x: U64, i: U64) -> U64:
    return shift_mix(shift_mix(x + (i + np.uint64(1)) * K1, 30) * K2, 27) * K3


def from_q(q: U64, i: U64) -> U64:
    inverse2, inverse3 = (np.uint64(pow(int(k), -1, MOD)) for k in (K2, K3))
    return unshift(unshift(q * inverse3, 27) * inverse2, 30) - (i + np.uint64(1)) * K1


def lane1(x: U64, i: U64) -> U64:
    return shift_mix(to_q(x, i), 31)


def from_h(x: U64, i: U64) -> U64:
    return shift_mix((lane1(x, i) + (i + np.uint64(1)) * K4) * K5, 32)


def from_state(x: U64, i: U64) -> U64:
    return shift_mix((to_q(x, i) + (i + np.uint64(1)) * K4) * K5, 32)


def chosen(x: U64, i: U64) -> U64:
    q = to_q(x, i)
    return shift_mix((q - (i + np.uint64(1)) * K1) * K5, 32)


def from_middle(x: U64, i: U64) -> U64:
    p = shift_mix(x + (i + np.uint64(1)) * K1, 30) * K2
    return shift_mix(shift_mix(p + (i + np.uint64(1)) * K4, 29) * K5, 32)


def full(x: U64, i: U64) -> U64:
    h = x + (i + np.uint64(1)) * K4
    return shift_mix(shift_mix(shift_mix(h, 30) * K2, 27) * K3, 31)


LANES: dict[str, Callable[[U64, U64], U64]] = {
    "lane 1 (splitmix64)": lane1,
    "lane 2 from h": from_h,
    "lane 2 from the state before h": from_state,
    "the same with K4 = -K1 (chosen)": chosen,
    "lane 2 from the middle": from_middle,
    "lane 2, second full mix": full,
}


def matches(left: U64, right: U64) -> int:
    """How many pairs (a of left, b of right) have a + b = 0."""
    ordered = np.sort(left)
    wanted = np.uint64(0) - right
    low = np.searchsorted(ordered, wanted, "left")
    return int((np.searchsorted(ordered, wanted, "right") - low).sum())


def random_words(rng: np.random.Generator, n: int) -> U64:
    return rng.standard_normal(2 * n, dtype=np.float32).view(np.uint64)


def marginal(lane: Callable[[U64, U64], U64], bit: int, n: int, rng: np.random.Generator) -> int:
    mask = np.uint64(1) << np.uint64(bit)
    sides = []
    for start in (0, n):
        i, x = np.arange(start, start + n, dtype=np.uint64), random_words(rng, n)
        sides.append(lane(x ^ mask, i) - lane(x, i))
    return matches(*sides)


def joint(lane: Callable[[U64, U64], U64], n: int, rng: np.random.Generator) -> int:
    """Pairs whose lane-1 changes are +d and -d, for one random d: does lane 2 cancel, too?"""
    d = rng.integers(0, MOD, dtype=np.uint64)
    sides = []
    for start, delta in ((0, d), (n, np.uint64(0) - d)):
        i = np.arange(start, start + n, dtype=np.uint64)
        h = rng.integers(0, MOD, n, dtype=np.uint64)
        before, after = (from_q(unshift(v, 31), i) for v in (h, h + delta))
        sides.append(lane(after, i) - lane(before, i))
    return matches(*sides)


def rate(count: int, pairs: int) -> str:
    return f"2^{math.log2(count / pairs):.1f}" if count else f"< 2^-{math.log2(pairs):.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--exponent", type=int, default=19)
    parser.add_argument("--bits", type=int, default=64, help="lanes tried, the highest first")
    parser.add_argument("--differences", type=int, default=8, help="random d of the joint test")
    args = parser.parse_args()
    np.seterr(over="ignore")
    n = 1 << args.exponent
    print("| lane | worst bit | marginal | all bits together | joint with lane 1 |")
    print("|---|---|---|---|---|")
    for name, lane in LANES.items():
        rng = np.random.default_rng(1)
        counts = {bit: marginal(lane, bit, n, rng) for bit in range(63, 63 - args.bits, -1)}
        worst = max(counts, key=lambda bit: counts[bit])
        both = sum(joint(lane, n, rng) for _ in range(args.differences))
        cells = [
            str(worst),
            rate(counts[worst], n * n),
            rate(sum(counts.values()), n * n * args.bits),
            "-" if lane is lane1 else rate(both, n * n * args.differences),
        ]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
