# SPDX-License-Identifier: Apache-2.0
"""Observations of invented trials, for tests of judging."""

from __future__ import annotations

from collections.abc import Mapping

from truestep.observation import Change, Miscompare, Observation, Party, Role, Spread
from truestep.reference import Reference, ReferenceKind


def miscompare(position: int = 0) -> Miscompare:
    return Miscompare(
        dtype="float32",
        shape=(8,),
        count=1,
        first=(position,),
        box=((position, position + 1),),
        spread=Spread.SINGLE,
        change=Change.SIGN,
        xor_mask=1 << 31,
        xor_common=1 << 31,
        positions=(position,),
        actual="0x00000000",
        expected="0x80000000",
    )


def trial(
    *parties: Party,
    wrong: int = 0,
    total: int = 10,
    kind: ReferenceKind = ReferenceKind.EXACT,
    site: str = "matmul/fp32",
    seed: int | None = 7,
    position: int = 0,
    conditions: Mapping[str, str] | None = None,
) -> Observation:
    return Observation(
        name="matmul_exact_fp32",
        reference=Reference(kind=kind, provenance="integers"),
        parties=parties or (Party(device="cuda:0"),),
        site=site,
        value_class="exact",
        value=float(wrong),
        num_comparisons=total,
        seed=seed,
        miscompare=miscompare(position) if wrong else None,
        conditions=conditions or {},
    )


def alone(device: str, unit: str = "", **rest: object) -> Observation:
    return trial(Party(device=device, unit=unit), **rest)


def sent(sender: str, receiver: str, **rest: object) -> Observation:
    return trial(
        Party(device=sender, role=Role.SENDER), Party(device=receiver, role=Role.RECEIVER), **rest
    )


def compared(subject: str, reference: str, **rest: object) -> Observation:
    return trial(
        Party(device=subject),
        Party(device=reference, role=Role.REFERENCE),
        kind=ReferenceKind.PEER,
        **rest,
    )
