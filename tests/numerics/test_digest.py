# SPDX-License-Identifier: Apache-2.0
"""The digest's definition: order, shards, single changes, dtype and shape."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truestep.numerics import bits, digest, mixing

WORDS = st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=40).map(
    lambda values: np.array(values, np.int64)
)


def plain_sums(words: np.ndarray) -> digest.Sums:
    """The formulas of the module's docstring, in Python integers."""
    first = second = 0
    for i, word in enumerate(words.tolist()):
        r = (i + 1) * digest.K1
        h = (word + r) & digest.MASK
        h = (h ^ h >> 30) * digest.K2 & digest.MASK
        q = (h ^ h >> 27) * digest.K3 & digest.MASK
        first += q ^ q >> 31
        g = (q - r) * digest.K5 & digest.MASK
        second += g ^ g >> 32
    return first & digest.MASK, second & digest.MASK


@given(WORDS)
def test_the_definition_is_what_the_formulas_say(words: np.ndarray) -> None:
    assert digest.lane_sums(np, words) == plain_sums(words)


def test_the_first_lane_is_splitmix64() -> None:
    # First outputs of the reference implementation for seed 0.
    known = (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F)
    zero = np.zeros(1, np.int64)
    assert tuple(digest.lane_sums(np, zero, offset=i)[0] for i in range(3)) == known


def test_digests_are_the_same_for_ever() -> None:
    array = np.arange(7, dtype=np.float32).reshape(7, 1)
    assert digest.digest(array) == "c72d446e915134db78bf28d13c14fa5a"
    assert digest.digest(np.zeros((0, 3), np.int8)) == "e6e3e832990e403005e47d86c6248dbb"


@given(WORDS, st.lists(st.integers(0, 40), max_size=4), st.randoms())
def test_shards_add_up_in_any_order(words: np.ndarray, cuts: list[int], random: object) -> None:
    edges = sorted({0, len(words), *(c for c in cuts if c < len(words))})
    shards = [digest.lane_sums(np, words[a:b], offset=a) for a, b in itertools.pairwise(edges)]
    random.shuffle(shards)  # type: ignore[attr-defined]
    assert digest.combine(*shards) == digest.lane_sums(np, words)


@given(st.integers(1, 6), st.integers(2, 9), st.data())
def test_column_shards_add_up(rows: int, columns: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, columns - 1))
    whole = np.random.default_rng(rows).integers(-(1 << 63), 1 << 63, (rows, columns), np.int64)
    left, right = whole[:, :cut].reshape(-1), whole[:, cut:].reshape(-1)
    sums = digest.combine(
        digest.lane_sums(np, left, row_words=cut, row_stride=columns),
        digest.lane_sums(np, right, offset=cut, row_words=columns - cut, row_stride=columns),
    )
    assert sums == digest.lane_sums(np, whole.reshape(-1))


@pytest.mark.parametrize("given_words", [{"row_words": 2}, {"row_stride": 2}])
def test_half_a_column_layout_is_refused(given_words: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must come together"):
        digest.lane_sums(np, np.zeros(4, np.int64), **given_words)
    with pytest.raises(ValueError, match="must come together"):
        digest.lane_sums(np, np.zeros(4, np.int64), row_words=3, row_stride=2)


@given(WORDS, st.data())
def test_any_change_inside_one_word_is_seen_in_both_lanes(
    words: np.ndarray, data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(words) - 1))
    xor = data.draw(st.integers(1, digest.MASK))
    changed = words.copy()
    changed.view(np.uint64)[index] ^= np.uint64(xor)
    before, after = digest.lane_sums(np, words), digest.lane_sums(np, changed)
    assert before[0] != after[0]
    assert before[1] != after[1]


@given(st.integers(0, 63), st.integers(0, 500))
def test_the_same_bit_flipped_in_two_words_is_seen(bit: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    words = rng.standard_normal(256, dtype=np.float32).view(np.int64)
    changed = words.copy()
    changed[rng.choice(words.size, 2, replace=False)] ^= np.int64(mixing.signed(1 << bit))
    before, after = digest.lane_sums(np, words), digest.lane_sums(np, changed)
    assert before[0] != after[0]
    assert before[1] != after[1]


@given(st.permutations(range(8)))
def test_moved_elements_are_seen(order: list[int]) -> None:
    array = np.arange(8, dtype=np.float64)
    is_moved = order != list(range(8))
    assert (digest.digest(array[order]) != digest.digest(array)) == is_moved


def test_words_crafted_to_collide_in_the_first_lane_differ_in_the_second() -> None:
    step = mixing.signed(digest.K1)
    one, two = np.array([5, 9], np.int64), np.array([9 + step, 5 - step], np.int64)
    before, after = digest.lane_sums(np, one), digest.lane_sums(np, two)
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_dtype_and_shape_are_folded_in() -> None:
    zeros = np.zeros(64, np.uint8)
    views = [zeros.view(bits.np_dtype(name)) for name in bits.FORMATS]
    views += [zeros.reshape(8, 8), zeros.reshape(1, 64), zeros.reshape(64, 1), zeros[:63]]
    views += [np.zeros(shape, np.uint8) for shape in ((), (0,), (0, 1), (1, 0))]
    assert len({digest.digest(view) for view in views}) == len(views)


def test_signed_zeros_differ_on_purpose() -> None:
    zero = np.array([0.0, -0.0])
    assert digest.digest(zero) != digest.digest(np.abs(zero))
    assert digest.digest(bits.canonical_zero(np, zero)) == digest.digest(np.abs(zero))


@given(st.integers(0, 25), st.sampled_from(["uint8", "bfloat16", "float32", "bool"]))
def test_words_hold_all_bytes_in_row_major_order(size: int, name: str) -> None:
    array = (np.arange(2 * size) % 2).astype(bits.np_dtype(name)).reshape(2, size).T
    raw = np.ascontiguousarray(array).tobytes()
    words = digest.host_words(array)
    assert words.tobytes() == raw.ljust(-(-len(raw) // 8) * 8, b"\0")
    assert digest.digest(array) == digest.digest(array.copy(order="C"))


@given(st.integers(0, digest.MASK), st.integers(0, digest.MASK))
def test_finishing_keeps_different_sums_apart(one: int, two: int) -> None:
    left = digest.finish((one, two), dtype="float32", shape=(2, 3))
    assert len(left) == 32
    assert (digest.finish((two, two), dtype="float32", shape=(2, 3)) == left) == (one == two)


def test_the_definition_holds_in_torch() -> None:
    torch = pytest.importorskip("torch")
    words = np.random.default_rng(0).integers(-(1 << 63), 1 << 63, 1000, np.int64)
    found = digest.lane_sums(torch, torch.from_numpy(words), offset=3)
    assert found == digest.lane_sums(np, words, offset=3)
