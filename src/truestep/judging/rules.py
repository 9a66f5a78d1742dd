# SPDX-License-Identifier: Apache-2.0
"""From observations to a verdict, or to the next experiment. Pure.

`judge` is the only place where a verdict is made. It may answer with an `Experiment` instead; the
stage that asked runs it, adds what was seen, and asks again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from truestep.certificate import Certificate, Repeatability
from truestep.context import Context
from truestep.device import Device
from truestep.judging.attribution import attribute
from truestep.judging.power import interval, power_of
from truestep.observation import Miscompare, Observation
from truestep.reason import Reason
from truestep.verdict import Outcome, Scope, Status, Suspect, Verdict

NUM_REPEATS = 7
NUM_FRESH_REPEATS = 3
"""A failing round is repeated ten times in all, three of them in a fresh process."""

NUM_CONTRASTS = 10


class ExperimentKind(StrEnum):
    """What would decide."""

    REPEAT = "repeat"
    FRESH = "fresh"
    CONTRAST = "contrast"


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """The next thing to run: the failing round again, here, in a fresh process, or elsewhere.

    Attributes:
        kind: Where to run it.
        seed: Seed of the failing round.
        unit: Unit on which it failed.
        times: How often.
    """

    kind: ExperimentKind
    seed: int
    unit: str
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that is known of one device under one test.

    Attributes:
        device: Device that is judged.
        first: Observations of the test itself.
        repeats: One for each repetition of the failing round on the same unit; the condition
            `process` is `same` or `fresh`.
        others: What the same test showed on other devices.
        contrasts: One for each repetition of it on other units and devices.
        selftest_caught: Whether every planted fault was found.
        context: Conditions during the test.
        certificates: What the determinism check found of this set-up.
        has_others: Whether there is another unit or device to ask.
        tried: Experiments that were made, whatever came of them.
        interruption: Why the work ended early, if it did.
        detail: What is known of the interruption.
    """

    device: Device
    first: tuple[Observation, ...]
    others: tuple[Observation, ...] = ()
    repeats: tuple[Observation, ...] = ()
    contrasts: tuple[Observation, ...] = ()
    selftest_caught: bool = False
    context: Context = field(default_factory=Context)
    certificates: tuple[Certificate, ...] = ()
    has_others: bool = False
    tried: frozenset[ExperimentKind] = frozenset()
    interruption: Reason | None = None
    detail: str = ""


def judge(evidence: Evidence) -> Verdict | Experiment:
    """The verdict on a device, or the experiment that is needed first.

    Guarantees:
        A pass only of finished work with comparisons, a caught planted fault and no counter of
        lost data that rose meanwhile; a fail only of a
        miscompare against a reference that is enough; where every party fails alike, nobody is
        blamed; calling again with the outcome of each experiment ends after at most three.
    """
    bad = next((o for o in evidence.first if o.is_miscompare), None)
    if bad is not None:
        experiment = _next_experiment(evidence, bad)
        return experiment if experiment is not None else _judge_miscompare(evidence, bad)
    num = sum(o.num_comparisons for o in evidence.first)
    if evidence.interruption is not None:
        return _unknown(evidence, Status.ERROR, evidence.interruption, num, evidence.detail)
    if num == 0:
        return _unknown(evidence, Status.COMPLETE, Reason.NO_COMPARISONS, num)
    if not evidence.selftest_caught:
        return _unknown(evidence, Status.COMPLETE, Reason.SELFTEST_MISSED, num)
    risen = evidence.context.risen()
    if risen:
        # Clean results beside lost data are no pass, and no fail of what was computed either.
        told = (
            f"the results are right, but the hardware reported lost data: {', '.join(risen)} rose"
        )
        return _unknown(evidence, Status.COMPLETE, Reason.HARDWARE_REPORTED, num, told)
    return Verdict(
        outcome=Outcome.PASS,
        status=Status.COMPLETE,
        reason=Reason.PASSED,
        num_comparisons=num,
        selftest_caught=True,
        power=power_of(evidence.first),
    )


def _next_experiment(evidence: Evidence, bad: Observation) -> Experiment | None:
    if bad.seed is None or not bad.reference.kind.is_enough:
        return None
    for kind, times in (
        (ExperimentKind.REPEAT, NUM_REPEATS),
        (ExperimentKind.FRESH, NUM_FRESH_REPEATS),
        (ExperimentKind.CONTRAST, NUM_CONTRASTS),
    ):
        is_possible = kind is not ExperimentKind.CONTRAST or evidence.has_others
        if is_possible and kind not in evidence.tried:
            return Experiment(kind=kind, seed=bad.seed, unit=bad.parties[0].unit, times=times)
    return None


def _judge_miscompare(evidence: Evidence, bad: Observation) -> Verdict:
    num = sum(o.num_comparisons for o in evidence.first)
    if not bad.reference.kind.is_enough:
        return _unknown(evidence, Status.COMPLETE, Reason.WEAK_EVIDENCE, num)
    if bad.reference.kind.needs_certificate and not _is_certified(evidence, bad):
        return _unknown(evidence, Status.COMPLETE, Reason.NOT_CERTIFIED, num)
    seen = (*evidence.first, *evidence.others, *evidence.repeats, *evidence.contrasts)
    suspect = attribute(seen, subject=evidence.device.id)
    k = sum(o.is_miscompare for o in evidence.repeats)
    n = len(evidence.repeats)
    if suspect is not None and suspect.scope in _NO_DEVICE:
        return _blame_no_device(evidence, suspect, num, (k, n))
    risen = evidence.context.risen()
    return Verdict(
        outcome=Outcome.FAIL,
        status=Status.COMPLETE,
        reason=_reason(k, n, risen),
        num_comparisons=num,
        selftest_caught=evidence.selftest_caught,
        suspect=suspect,
        is_confirmed=k > 0,
        repeats=(k, n),
        detail=_describe(bad, evidence.repeats, k, n, risen)
        + (f"; then the test ended early: {evidence.interruption}" * bool(evidence.interruption)),
        untested=_untested(seen),
        power=power_of(evidence.first),
    )


_NO_DEVICE = {
    Scope.SOFTWARE_OR_PLATFORM: (
        Reason.ALL_ALIKE,
        "wrong results everywhere",
    ),
    Scope.INPUT_DATA: (
        Reason.INPUT_DAMAGED,
        "the input is damaged: what was computed from it says nothing of a device",
    ),
}
"""Suspects that clear the device, with the reason and what it means."""


def _blame_no_device(
    evidence: Evidence, suspect: Suspect, num: int, repeats: tuple[int, int]
) -> Verdict:
    reason, detail = _NO_DEVICE[suspect.scope]
    return Verdict(
        outcome=Outcome.UNKNOWN,
        status=Status.COMPLETE,
        reason=reason,
        num_comparisons=num,
        selftest_caught=evidence.selftest_caught,
        suspect=suspect,
        is_confirmed=repeats[0] > 0,
        repeats=repeats,
        detail=detail,
    )


def _reason(k: int, n: int, risen: tuple[str, ...]) -> Reason:
    if risen:
        return Reason.HARDWARE_REPORTED
    if k == 0:
        return Reason.MISCOMPARE_NOT_REPEATED
    return Reason.MISCOMPARE_REPEATED if k == n else Reason.MISCOMPARE_INTERMITTENT


def _describe(
    bad: Observation, repeats: Iterable[Observation], k: int, n: int, risen: tuple[str, ...]
) -> str:
    found = bad.miscompare
    if found is None:
        return ""
    bits = ",".join(map(str, found.bits[:8])) + (",..." if len(found.bits) > 8 else "")
    parts = [
        (
            f"{bad.site}: {found.count} of {math.prod(found.shape)} elements, {found.spread} at "
            f"{_place(found)}, {found.change}, bits {bits}"
        ),
        f"came back in {k} of {n} repeats",
    ]
    if n:
        low, high = interval(k, n)
        parts[-1] += f" (95 % interval {low:.0%} to {high:.0%})"
    seen = (bad, *repeats)
    masks = {(o.miscompare.xor_mask, o.miscompare.positions) for o in seen if o.miscompare}
    if k:
        parts.append("varies from run to run" if len(masks) > 1 else "the same every time")
    if risen:
        parts.append(f"the hardware reported it: {', '.join(risen)} rose")
    return "; ".join(parts)


def _place(found: Miscompare) -> str:
    """Where the differences lie: an index, or the box that holds them."""
    if found.count == 1:
        return str(list(found.first))
    return f"[{', '.join(f'{start}:{stop}' for start, stop in found.box)}]"


def _untested(seen: Iterable[Observation]) -> tuple[str, ...]:
    """Conditions that could matter and were not varied."""
    values: dict[str, set[str]] = {}
    for observation in seen:
        for name, value in observation.conditions.items():
            values.setdefault(name, set()).add(value)
    usual = ("clock", "firmware", "temperature")
    return tuple(name for name in usual if len(values.get(name, ())) < 2)


def _is_certified(evidence: Evidence, bad: Observation) -> bool:
    return any(
        c.tensor == bad.site and c.repeatability is Repeatability.BITWISE
        for c in evidence.certificates
    )


def _unknown(
    evidence: Evidence, status: Status, reason: Reason, num: int, detail: str = ""
) -> Verdict:
    return Verdict(
        outcome=Outcome.UNKNOWN,
        status=status,
        reason=reason,
        num_comparisons=num,
        selftest_caught=evidence.selftest_caught,
        detail=detail or reason.next_action,
    )
