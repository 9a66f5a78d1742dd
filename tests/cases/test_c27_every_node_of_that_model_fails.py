# SPDX-License-Identifier: Apache-2.0
"""Where every node of a model fails alike, the test is suspected and no node."""

from __future__ import annotations

from truestep.fleet.vendor_tools import Claim, Reading, read_speeds, together
from truestep.reason import Owner

LEAST = 335.0


def test_when_all_are_slow_the_set_up_is_suspected() -> None:
    figures = {f"n{n}": 15.1 if n < 38 else 14.9 for n in range(40)}
    found = read_speeds(figures, least=431.0)
    assert {r.claim for r in found.values()} == {Claim.ALL_ALIKE}
    assert {r.reason.owner for r in found.values()} == {Owner.PLATFORM}


def test_one_slow_node_is_slow_and_not_called_corrupt() -> None:
    figures = {f"n{n}": 440.0 for n in range(39)} | {"n39": 15.1}
    found = read_speeds(figures, least=431.0)
    assert [node for node, r in found.items() if r.claim is not Claim.SOUND] == ["n39"]
    assert found["n39"].claim is Claim.SLOW


def test_a_node_far_slower_than_the_slow_rest_still_stands_out() -> None:
    figures = {"a": 256.6, "b": 255.0, "c": 257.1, "d": 15.1}
    found = read_speeds(figures, least=LEAST)
    assert [r.claim for r in found.values()] == [Claim.ALL_ALIKE] * 3 + [Claim.SLOW]


def test_most_called_faulty_alike_is_nobodys_fault() -> None:
    faulty, sound = Reading(claim=Claim.FAULTY), Reading(claim=Claim.SOUND)
    many = {f"n{n}": faulty for n in range(38)} | {"n38": sound, "n39": sound}
    assert [r.claim for r in together(many).values()].count(Claim.ALL_ALIKE) == 38
    one = {f"n{n}": sound for n in range(39)} | {"n39": faulty}
    assert together(one) == one


def test_what_is_no_number_is_not_fast() -> None:
    assert read_speeds({"a": float("nan")}, least=1.0)["a"].claim is Claim.SLOW
