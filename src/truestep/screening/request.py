# SPDX-License-Identifier: Apache-2.0
"""What a screening is asked for, whom it tells, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from truestep.device import Node
from truestep.fault import Fault
from truestep.record import Record
from truestep.screening.tasks import Found
from truestep.verdict import Outcome, merge_outcomes

EXERCISE = "exercise_"
"""How the ids begin of tests that rehearse the runner: what they show says nothing of hardware."""


def is_exercise(test_id: str) -> bool:
    """Whether a test only rehearses the runner."""
    return test_id.startswith(EXERCISE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for.

    Attributes:
        backend: Resolved name of the backend.
        level: 1 to 4.
        budget_s: Seconds for all tests; None for the level's own.
        devices: Addresses to screen; empty for all.
        tests: Ids and groups; empty for all of the level.
        seed: Seed of every input.
        evidence_dir: Folder for failing inputs and outputs; empty to keep none.
        allow_busy: Screen devices that others use, too.
        num_simulated: Invented devices in place of real ones.
        faults: Planted by request.
        is_blind: Switch the comparison off, to see that nothing can pass then.
        run_id: Name of the run that a controller gave out; empty to draw one.
    """

    backend: str
    level: int = 1
    budget_s: float | None = None
    devices: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    seed: int = 0
    evidence_dir: str = ""
    allow_busy: bool = False
    num_simulated: int = 0
    faults: tuple[Fault, ...] = ()
    is_blind: bool = False
    run_id: str = ""

    @property
    def is_simulated(self) -> bool:
        """Whether anything about it is invented, or a test of it only rehearses the runner."""
        is_rehearsal = any(map(is_exercise, self.tests))
        return bool(self.num_simulated or self.faults or self.is_blind or is_rehearsal)


class Progress(Protocol):
    """Who is told how a screening goes on, and may stop it."""

    def planned(self, num_tests: int, seconds: float) -> None:
        """The plan stands."""

    def started(self, test_id: str) -> None:
        """A test begins."""

    def waiting(self) -> None:
        """Called several times a second while tests run."""

    def finished(self, record: Record) -> None:
        """A record was made."""

    def is_stopped(self) -> bool:
        """Whether the screening should end with what it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a screening found.

    Attributes:
        run_id: Name of the run.
        node: Where it ran.
        request: What was asked for.
        found: Devices that were screened.
        records: One for each device and test, in order.
        not_covered: Tests of the level that no device could run, and why coverage is partial.
        is_hit: Whether a fault that was planted by request hit anything.
        is_interrupted: Stopped before the plan was done.
        elapsed_s: Wall seconds.
    """

    run_id: str
    node: Node
    request: Request
    found: tuple[Found, ...]
    records: tuple[Record, ...]
    not_covered: tuple[str, ...] = ()
    is_hit: bool = False
    is_interrupted: bool = False
    elapsed_s: float = 0.0

    @property
    def outcome(self) -> Outcome:
        """Fail if anything failed; pass only if all that was asked for passed."""
        parts = [r.verdict.outcome for r in self.records if r.verdict is not None]
        return merge_outcomes([*parts, *([Outcome.UNKNOWN] if self.is_interrupted else [])])
