# SPDX-License-Identifier: Apache-2.0
"""What the evidence says of a device: `Verdict`, with its `Suspect` and its `Power`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from truestep.reason import Reason


class Outcome(StrEnum):
    """What was found."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Status(StrEnum):
    """Whether the work was done."""

    COMPLETE = "complete"
    SKIPPED = "skipped"
    ERROR = "error"


class Scope(StrEnum):
    """What a suspect is."""

    UNIT = "unit"
    DEVICE = "device"
    LINK = "link"
    HOST_CPU = "host_cpu"
    HOST_MEMORY = "host_memory"
    INPUT_DATA = "input_data"
    SOFTWARE_OR_PLATFORM = "software_or_platform"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """The one thing that the evidence points at.

    Attributes:
        scope: What it is.
        name: Which one: `cpu:0/core3`, `cuda:2`, `cuda:2->cuda:3`. Empty when unknown.
        because: The contrast that singles it out, or the one that is missing.
    """

    scope: Scope
    name: str = ""
    because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """What a clean result rules out, for one operation, dtype and value class.

    Attributes:
        site: Operation and precision.
        value_class: Class of operands.
        num_comparisons: Independent clean checked calls, of the unit that made the fewest.
        excluded_rate: Rates of wrong calls above this are excluded at 95 %: 1 - 0.05^(1/n).
        coverage: Shapes, value ranges and units that were covered.
    """

    site: str
    value_class: str
    num_comparisons: int
    excluded_rate: float
    coverage: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Outcome, status and reason, the suspect where one is named, and the power of the work.

    Attributes:
        outcome: Pass, fail or unknown. Only completed work with at least one comparison and a
            caught planted fault can pass; skipped and failed work is unknown.
        status: Whether the work was done.
        reason: Permanent code.
        num_comparisons: Comparisons made.
        selftest_caught: Whether a fault planted beneath the backend was found in this run.
        suspect: What the evidence points at; None where nothing is wrong.
        is_confirmed: The failure came back when it was repeated.
        repeats: Failed repeats and all repeats, (k, n).
        detail: A sentence for people.
        untested: Conditions without contrast that could still be the cause.
        evidence: Names of artifacts, or ids of records, on which this rests.
        power: What was ruled out.
    """

    outcome: Outcome
    status: Status
    reason: Reason
    num_comparisons: int = 0
    selftest_caught: bool = False
    suspect: Suspect | None = None
    is_confirmed: bool = False
    repeats: tuple[int, int] = (0, 0)
    detail: str = ""
    untested: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    power: tuple[Power, ...] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        if self.status is not Status.COMPLETE and self.outcome is not Outcome.UNKNOWN:
            raise ValueError(
                f"work that was {self.status!s} can only be unknown, got {self.outcome!s}. "
                "Only completed work passes or fails."
            )
        if self.outcome is Outcome.PASS and self.num_comparisons < 1:
            raise ValueError(
                "a pass needs at least one comparison, got 0. "
                "Report unknown with reason no_comparisons."
            )
        if self.outcome is Outcome.PASS and not self.selftest_caught:
            raise ValueError(
                "a pass needs a planted fault that was caught, got none. "
                "Report unknown with reason selftest_missed."
            )


def merge_outcomes(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome of several together: a fail wins, then unknown; nothing at all is unknown.

    Guarantees: commutative, associative, and never a pass unless every part is one.
    """
    parts = set(outcomes)
    if Outcome.FAIL in parts:
        return Outcome.FAIL
    if parts == {Outcome.PASS}:
        return Outcome.PASS
    return Outcome.UNKNOWN
