# SPDX-License-Identifier: Apache-2.0
"""Seeded inputs: one stream in every library, within the amplitude, the same for ever."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truestep.numerics.inputs import Distribution, _scaled, random_integers, random_words
from truestep.numerics.mixing import WORD

SEEDS = st.integers(-(1 << 63), (1 << 65) - 1)
DISTRIBUTIONS = st.sampled_from(Distribution)
MOST = (1 << 30) - 1


@given(SEEDS, st.integers(0, 1 << 40), st.integers(0, 50))
def test_torch_gives_the_words_of_numpy(seed: int, offset: int, num: int) -> None:
    torch = pytest.importorskip("torch")
    found = random_words(torch, num, seed=seed, offset=offset)
    assert found.tolist() == random_words(np, num, seed=seed, offset=offset).tolist()


@given(SEEDS, st.integers(0, 40), st.integers(0, 40))
def test_an_offset_cuts_a_block_out_of_the_stream(seed: int, offset: int, num: int) -> None:
    whole = random_words(np, offset + num, seed=seed)
    assert np.array_equal(random_words(np, num, seed=seed, offset=offset), whole[offset:])


@given(SEEDS)
def test_the_low_64_bits_of_a_seed_count(seed: int) -> None:
    assert np.array_equal(random_words(np, 4, seed=seed), random_words(np, 4, seed=seed % WORD))
    assert not np.array_equal(random_words(np, 4, seed=seed), random_words(np, 4, seed=seed ^ 1))


@given(SEEDS, st.integers(1, 8) | st.integers(1, MOST), DISTRIBUTIONS)
def test_integers_stay_within_the_amplitude(
    seed: int, amplitude: int, distribution: Distribution
) -> None:
    found = random_integers((3, 50), seed=seed, amplitude=amplitude, distribution=distribution)
    assert found.shape == (3, 50)
    assert found.dtype == np.int64
    assert found.max() <= amplitude
    assert found.min() >= (1 if distribution is Distribution.POSITIVE else -amplitude)


@given(st.integers(1, 3), DISTRIBUTIONS)
def test_a_small_amplitude_is_used_up_to_both_ends(
    amplitude: int, distribution: Distribution
) -> None:
    found = random_integers((9000,), seed=5, amplitude=amplitude, distribution=distribution)
    lowest = 1 if distribution is Distribution.POSITIVE else -amplitude
    assert set(found.tolist()) == set(range(lowest, amplitude + 1))


@given(st.integers(1, MOST))
def test_the_extreme_words_stay_within_the_span(amplitude: int) -> None:
    span = 2 * amplitude + 1
    scaled = _scaled(np.array([0, (1 << 32) - 1]), span).tolist()
    assert scaled[0] == 0
    assert scaled[1] in (span - 1, span - 2)


@pytest.mark.parametrize("amplitude", [-1, 0, MOST + 1])
def test_an_amplitude_that_would_wrap_is_refused(amplitude: int) -> None:
    with pytest.raises(ValueError, match="amplitude must lie in"):
        random_integers((2,), seed=0, amplitude=amplitude)


def test_spreads_differ_as_they_are_named() -> None:
    drawn = {
        d: np.abs(random_integers((20_000,), seed=3, amplitude=1000, distribution=d)).mean()
        for d in Distribution
    }
    assert 480 < drawn[Distribution.UNIFORM] < 520
    assert 480 < drawn[Distribution.POSITIVE] < 520
    assert 200 < drawn[Distribution.GAUSSIAN] < 260
    assert 300 < drawn[Distribution.HEAVY_TAIL] < 350


def test_streams_are_the_same_for_ever() -> None:
    words = [f"{word % WORD:016x}" for word in random_words(np, 3, seed=42).tolist()]
    assert words == ["bdd732262feb6e95", "28efe333b266f103", "47526757130f9f52"]
    drawn = {
        d: random_integers((5,), seed=42, amplitude=127, distribution=d).tolist()
        for d in Distribution
    }
    assert drawn == {
        Distribution.UNIFORM: [62, -87, -56, -40, -118],
        Distribution.GAUSSIAN: [-28, 44, -40, 11, -85],
        Distribution.HEAVY_TAIL: [62, -87, -28, -10, -59],
        Distribution.POSITIVE: [95, 21, 36, 44, 5],
    }
