# SPDX-License-Identifier: Apache-2.0
"""A damaged token id is stopped before the embedding and filed as damage of the input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truestep.device import Device
from truestep.judging.rules import Evidence, judge
from truestep.numerics.digest import digest
from truestep.observation import Observation
from truestep.reason import Owner, Reason
from truestep.verdict import Outcome, Scope, Verdict
from truestep.workloads import token_shard

VOCABULARY = 50_304
AT = 1234
CLEAN = np.random.default_rng(6).integers(0, VOCABULARY, size=4096, dtype=np.uint32)
GPU = Device(id="cuda:3", kind="cuda", model="m")


def flipped(bit: int) -> np.ndarray:
    tokens = CLEAN.copy()
    tokens[AT] ^= np.uint32(1 << bit)
    return tokens


def negative() -> np.ndarray:
    tokens = CLEAN.astype(np.int64)
    tokens[AT] = -1
    return tokens


def check(tokens: np.ndarray, *, written: np.ndarray = CLEAN) -> tuple[Observation, ...]:
    return token_shard.check(
        tokens,
        vocabulary_size=VOCABULARY,
        digest=digest(written),
        shard="shard-00017",
        host="node-5",
        rank=3,
        offset=1_000_000,
    )


def judged(seen: tuple[Observation, ...]) -> Verdict:
    verdict = judge(Evidence(device=GPU, first=seen, selftest_caught=True))
    assert isinstance(verdict, Verdict)
    return verdict


def is_filed_as_damage_of_the_input(verdict: Verdict) -> bool:
    return (
        (verdict.outcome, verdict.reason) == (Outcome.UNKNOWN, Reason.INPUT_DAMAGED)
        and verdict.suspect is not None
        and verdict.suspect.scope is Scope.INPUT_DATA
        and verdict.suspect.name == "node-5/shard-00017"
        and verdict.reason.owner is not Owner.HARDWARE
    )


@pytest.mark.parametrize(
    ("tokens", "written"), [(flipped(20), CLEAN), (negative(), CLEAN.astype(np.int64))]
)
def test_an_illegal_id_is_stopped_with_its_rank_shard_and_offset(tokens, written):
    seen = check(tokens, written=written)
    by_range = seen[0]
    assert by_range.is_miscompare
    assert by_range.coverage == {"rank": "3", "shard": "shard-00017", "offset": str(1_001_234)}
    assert by_range.miscompare.positions == (AT,)
    assert is_filed_as_damage_of_the_input(judged(seen))


def test_an_id_that_stays_legal_is_caught_by_the_digest():
    by_range, by_digest = check(flipped(3))
    assert int(flipped(3)[AT]) < VOCABULARY
    assert not by_range.is_miscompare
    assert by_digest.is_miscompare
    assert by_digest.coverage == {"rank": "3", "shard": "shard-00017"}
    assert is_filed_as_damage_of_the_input(judged((by_range, by_digest)))


def test_a_sound_shard_may_be_used():
    assert not any(o.is_miscompare for o in check(CLEAN))
    assert judged(check(CLEAN)).outcome is Outcome.PASS


@given(st.integers(0, CLEAN.size - 1), st.integers(0, 31))
def test_no_flipped_bit_of_any_id_goes_unseen(position, bit):
    tokens = CLEAN.copy()
    tokens[position] ^= np.uint32(1 << bit)
    by_range, by_digest = check(tokens)
    assert by_digest.is_miscompare
    assert by_range.is_miscompare == bool(tokens[position] >= VOCABULARY)


def test_a_dtype_that_cannot_leave_the_vocabulary_is_no_trouble():
    tokens = np.array([[-1, 0, 127]], dtype=np.int8)
    by_range, by_digest = check(tokens, written=tokens)
    assert by_range.miscompare.positions == (0,)
    assert not by_digest.is_miscompare
