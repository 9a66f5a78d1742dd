# SPDX-License-Identifier: Apache-2.0
"""What a number of comparisons supports: excluded rates, and intervals of rates."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable

from truestep.observation import Observation
from truestep.verdict import Power

CONFIDENCE = 0.95


def excluded_rate(num_clean: int, confidence: float = CONFIDENCE) -> float:
    """The rate above which `num_clean` clean independent calls would have shown a miscompare.

    1 - (1 - confidence)^(1/n). With no call nothing is excluded: 1.0.

    Guarantees: falls as n grows; about 3/n for large n at 95 %.
    """
    if num_clean < 1:
        return 1.0
    return -math.expm1(math.log1p(-confidence) / num_clean)


def detection_chance(rate: float, num_calls: int) -> float:
    """The chance that a fault of `rate` per call shows at least once in `num_calls` calls."""
    if rate >= 1.0:
        return 1.0 if num_calls else 0.0
    return -math.expm1(num_calls * math.log1p(-rate))


def interval(k: int, n: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Clopper-Pearson bounds of a rate of which k of n trials were seen.

    Two-sided; with k = 0 the upper bound is the two-sided one, so larger than `excluded_rate`.

    Raises:
        ValueError: Not 0 <= k <= n.

    Guarantees: holds k/n; equals the quantiles of the beta distribution to 1e-9.

    Source: Clopper and Pearson, Biometrika 26 (1934).
    """
    if not 0 <= k <= n:
        raise ValueError(f"k must lie in 0..n, got k={k!r}, n={n!r}.")
    tail = (1 - confidence) / 2
    low = 0.0 if k == 0 else _solve(lambda p: 1 - _at_most(k - 1, n, p), tail)
    high = 1.0 if k == n else _solve(lambda p: -_at_most(k, n, p), -tail)
    return low, high


def _at_most(k: int, n: int, p: float) -> float:
    """The chance of at most k successes in n trials of chance p, in (0, 1)."""
    log_p, log_q = math.log(p), math.log1p(-p)
    log_n = math.lgamma(n + 1)
    return math.fsum(
        math.exp(log_n - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * log_p + (n - i) * log_q)
        for i in range(k + 1)
    )


def _solve(rising: Callable[[float], float], target: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < target else (low, middle)
    return (low + high) / 2


def power_of(observations: Iterable[Observation]) -> tuple[Power, ...]:
    """What clean observations rule out, one entry for each site and value class.

    Sites with a miscompare are left out: there nothing is ruled out.
    """
    counts: dict[tuple[str, str], int] = defaultdict(int)
    coverage: dict[tuple[str, str], set[str]] = defaultdict(set)
    dirty = set()
    for seen in observations:
        key = (seen.site, seen.value_class)
        if seen.is_miscompare:
            dirty.add(key)
        counts[key] += seen.num_comparisons
        coverage[key].update(f"{name}: {what}" for name, what in seen.coverage.items())
    return tuple(
        Power(
            site=site,
            value_class=value_class,
            num_comparisons=num,
            excluded_rate=excluded_rate(num),
            coverage=tuple(sorted(coverage[site, value_class])),
        )
        for (site, value_class), num in sorted(counts.items())
        if num and (site, value_class) not in dirty
    )
