# SPDX-License-Identifier: Apache-2.0
"""The mixer: a bijection, the same in Python integers, numpy and torch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truestep.numerics import mixing

INT64S = st.integers(-(1 << 63), (1 << 63) - 1)
PATHS = st.lists(st.integers(0, 100), max_size=4).map(tuple)


def unshift(value: int, by: int) -> int:
    found = value
    for _ in range(64 // by):
        found = value ^ (found >> by)
    return found


def unmix(value: int) -> int:
    second, first = (pow(m, -1, mixing.WORD) for m in reversed(mixing.MULTIPLIERS))
    value = unshift(value, 31) * second % mixing.WORD
    value = unshift(value, 27) * first % mixing.WORD
    return unshift(value, 30)


@given(INT64S)
def test_arrays_and_integers_are_mixed_alike(word: int) -> None:
    mixed = int(mixing.mix(np.array([word], np.int64))[0])
    assert mixed == mixing.signed(mixing.mix_int(word))


@given(st.integers(0, mixing.WORD - 1))
def test_mixing_can_be_undone(word: int) -> None:
    assert unmix(mixing.mix_int(word)) == word


@given(st.lists(INT64S, min_size=1, max_size=20))
def test_torch_mixes_as_numpy_does(words: list[int]) -> None:
    torch = pytest.importorskip("torch")
    found = mixing.mix(torch.tensor(words, dtype=torch.int64))
    assert found.tolist() == mixing.mix(np.array(words, np.int64)).tolist()


@given(INT64S, st.integers(1, 63))
def test_right_shifts_bring_in_zeros(word: int, by: int) -> None:
    assert int(mixing.shift_right(np.array(word), by)) == (word % mixing.WORD) >> by


@given(st.integers(-(1 << 70), 1 << 70))
def test_signed_keeps_the_low_64_bits(value: int) -> None:
    found = mixing.signed(value)
    assert -(1 << 63) <= found < 1 << 63
    assert (found - value) % mixing.WORD == 0


@given(st.integers(0, mixing.WORD - 1), PATHS, PATHS)
def test_different_paths_give_different_seeds(seed: int, one: tuple, two: tuple) -> None:
    is_same = mixing.derive(seed, *one) == mixing.derive(seed, *two)
    assert is_same == (one == two)
    assert mixing.derive(mixing.derive(seed, *one), *two) == mixing.derive(seed, *one, *two)


def test_the_mixer_is_splitmix64_for_ever() -> None:
    # First outputs of the reference implementation for seed 0.
    outputs = [mixing.mix_int(mixing.GAMMA * i) for i in (1, 2, 3)]
    assert outputs == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert mixing.derive(7) == 7
    assert mixing.derive(0, 0) == 0xE220A8397B1DCDAF
    assert mixing.derive(1, 2, 3) == 0x679D70FBDB3FD840
