# SPDX-License-Identifier: Apache-2.0
"""What a number of comparisons supports: excluded rates, and intervals of rates."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable

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


def chance_of_share(wrong: int, total: int, others_wrong: int, others_total: int) -> float:
    """The chance that a party no worse than the others would have this many of the wrong results.

    One-sided Fisher exact test: of all wrong results of everybody, at least `wrong` fall among
    this party's `total` comparisons by luck.

    Guarantees: in [0, 1]; 1 without comparisons of others; falls as `wrong` grows.

    Source: Fisher, Statistical Methods for Research Workers (1934), section 21.02.
    """
    everything, all_wrong = total + others_total, wrong + others_wrong
    if others_total == 0 or wrong == 0:
        return 1.0
    log_all = _log_choose(everything, all_wrong)
    tail = (
        math.exp(_log_choose(total, k) + _log_choose(others_total, all_wrong - k) - log_all)
        for k in range(max(wrong, all_wrong - others_total), min(all_wrong, total) + 1)
    )
    return min(1.0, math.fsum(tail))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


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
    low = 0.0 if k == 0 else _beta_quantile(tail, k, n - k + 1)
    high = 1.0 if k == n else _beta_quantile(1 - tail, k + 1, n - k)
    return low, high


def _beta_quantile(chance: float, a: int, b: int) -> float:
    """The point below which a beta variable lies with this chance, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _beta_cdf(middle, a, b) < chance else (low, middle)
    return (low + high) / 2


def _beta_cdf(x: float, a: int, b: int) -> float:
    """The regularised incomplete beta function, for x in (0, 1)."""
    if x > (a + 1) / (a + b + 2):
        # The fraction converges fast only below the mean.
        return 1 - _beta_cdf(1 - x, b, a)
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    front = math.exp(a * math.log(x) + b * math.log1p(-x) - log_beta) / a
    return front / _continued_fraction(x, a, b)


def _continued_fraction(x: float, a: int, b: int) -> float:
    """By Lentz's method, in about sqrt(max(a, b)) steps. Source: DLMF 8.17.22."""
    tiny, close = 1e-300, 1e-15
    value, c, d = 1.0, 1.0, 0.0
    for step in range(1, 100_000):
        m = step // 2
        if step % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / ((1 + term * d) or tiny)
        c = (1 + term / c) or tiny
        value *= c * d
        if abs(c * d - 1) < close:
            break
    return value


def power_of(observations: Iterable[Observation]) -> tuple[Power, ...]:
    """What clean observations rule out, one entry for each site and value class.

    A defect may sit in one unit alone, so the comparisons of a device count as those of the unit
    that made the fewest. Sites with a miscompare are left out: there nothing is ruled out.
    """
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    coverage: dict[tuple[str, str], set[str]] = defaultdict(set)
    dirty = set()
    for seen in observations:
        key = (seen.site, seen.value_class)
        if seen.is_miscompare:
            dirty.add(key)
        counts[key][str(seen.parties[0])] += seen.num_comparisons
        # A result holds under the conditions it was had under: one thread is not thirty-two.
        covered = {**seen.coverage, **seen.conditions}
        coverage[key].update(f"{name}: {what}" for name, what in covered.items())
    return tuple(
        Power(
            site=site,
            value_class=value_class,
            num_comparisons=fewest,
            excluded_rate=excluded_rate(fewest),
            coverage=(
                *sorted(coverage[site, value_class]),
                f"units: {', '.join(sorted(by_unit))}",
            ),
        )
        for (site, value_class), by_unit in sorted(counts.items())
        if (fewest := min(by_unit.values())) and (site, value_class) not in dirty
    )
