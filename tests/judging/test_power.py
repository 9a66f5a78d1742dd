# SPDX-License-Identifier: Apache-2.0
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import beta, fisher_exact

from truestep.judging.power import (
    chance_of_share,
    detection_chance,
    excluded_rate,
    interval,
    power_of,
)
from truestep.observation import Change, Miscompare, Observation, Party, Spread
from truestep.reference import Reference, ReferenceKind

CLOSE = 1e-9


@st.composite
def tallies(draw: st.DrawFn, most: int = 10**6) -> tuple[int, int]:
    n = draw(st.integers(1, 400) | st.integers(1, most))
    return draw(st.integers(0, n)), n


def seen(
    *, num: int, site: str = "matmul/fp32", unit: str = "", is_bad: bool = False, **conditions: str
) -> Observation:
    miscompare = Miscompare(
        dtype="float32",
        shape=(2,),
        count=1,
        first=(0,),
        box=((0, 1),),
        spread=Spread.SINGLE,
        change=Change.SIGN,
        xor_mask=1 << 31,
        xor_common=1 << 31,
        positions=(0,),
        actual="0x00000000",
        expected="0x80000000",
    )
    return Observation(
        name="test",
        reference=Reference(kind=ReferenceKind.EXACT, provenance="integers"),
        parties=(Party(device="cpu:0", unit=unit),),
        site=site,
        value_class="exact",
        value=float(is_bad),
        num_comparisons=num,
        miscompare=miscompare if is_bad else None,
        conditions=conditions,
        coverage={"shape": "2"},
    )


@given(st.integers(1, 10**9), st.floats(0.5, 0.9999))
def test_an_excluded_rate_leaves_a_clean_run_no_more_than_the_rest_of_the_confidence(n, level):
    rate = excluded_rate(n, level)
    assert math.isclose((1 - rate) ** n, 1 - level, rel_tol=1e-6)
    assert math.isclose(rate, 1 - (1 - level) ** (1 / n), rel_tol=1e-6)


@given(st.integers(0, 10**9), st.integers(1, 10**6))
def test_more_clean_calls_exclude_smaller_rates(n, more):
    assert excluded_rate(n + more) < excluded_rate(n) <= 1.0


def test_nothing_is_excluded_without_a_call_and_three_in_n_with_many():
    assert excluded_rate(0) == 1.0
    assert math.isclose(excluded_rate(10**6) * 10**6, 3, rel_tol=0.01)


@given(st.integers(1, 10**6))
def test_the_excluded_rate_is_the_one_that_is_found_at_the_confidence(n):
    assert math.isclose(detection_chance(excluded_rate(n), n), 0.95, rel_tol=1e-9)


@given(st.floats(0, 1), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_detection_chance_is_a_chance_that_grows_with_calls(rate, n, more):
    chance = detection_chance(rate, n)
    assert 0 <= chance <= detection_chance(rate, n + more) <= 1
    if n == 0 or rate == 0:
        assert chance == 0


@given(tallies())
@example((500_000, 10**6))
@example((1, 10**6))
@example((10**6 - 1, 10**6))
@example((500_000, 10**6))
def test_intervals_are_the_quantiles_of_the_beta_distribution(tally):
    k, n = tally
    low, high = interval(k, n)
    assert abs(low - (beta.ppf(0.025, k, n - k + 1) if k else 0.0)) < CLOSE
    assert abs(high - (beta.ppf(0.975, k + 1, n - k) if k < n else 1.0)) < CLOSE
    assert low <= k / n <= high


@given(tallies(most=10**4))
def test_intervals_are_symmetric_in_what_counts_as_success(tally):
    k, n = tally
    low, high = interval(k, n)
    mirrored_low, mirrored_high = interval(n - k, n)
    assert abs(low - (1 - mirrored_high)) < CLOSE
    assert abs(high - (1 - mirrored_low)) < CLOSE


@pytest.mark.parametrize(("k", "n"), [(-1, 2), (3, 2), (0, -1)])
def test_an_interval_of_an_impossible_tally_is_refused(k, n):
    with pytest.raises(ValueError, match="k must lie in"):
        interval(k, n)


def test_power_is_told_by_site_and_never_where_something_was_wrong():
    found = power_of(
        [
            seen(site="matmul/fp32", num=100),
            seen(site="matmul/fp32", num=200),
            seen(site="add/fp32", num=100),
            seen(site="add/fp32", num=100, is_bad=True),
            seen(site="copy", num=0),
        ]
    )
    assert [(p.site, p.num_comparisons) for p in found] == [("matmul/fp32", 300)]
    assert found[0].excluded_rate == excluded_rate(300)
    assert found[0].coverage == ("shape: 2", "units: cpu:0")


def test_power_states_the_conditions_under_which_it_was_had():
    (found,) = power_of([seen(site="sum", num=10, threads="1")])
    assert "threads: 1" in found.coverage


def test_power_is_that_of_the_unit_that_made_fewest_comparisons():
    cores = [seen(num=n, unit=f"core{i}") for i, n in enumerate((100, 300))]
    (power,) = power_of([*cores, seen(num=50, unit="core0")])
    assert power.num_comparisons == 150
    assert power.coverage[-1] == "units: cpu:0/core0, cpu:0/core1"


@given(st.integers(1, 30), st.integers(0, 30), st.integers(1, 200), st.integers(1, 200))
def test_the_chance_of_a_share_is_that_of_fishers_test(wrong, others_wrong, extra, others_extra):
    total, others_total = wrong + extra, others_wrong + others_extra
    table = [[wrong, extra], [others_wrong, others_extra]]
    expected = fisher_exact(table, alternative="greater").pvalue
    found = chance_of_share(wrong, total, others_wrong, others_total)
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-12)
