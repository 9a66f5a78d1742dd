# SPDX-License-Identifier: Apache-2.0
"""What a screening test declares: `ScreeningTest`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from truestep.reference import ReferenceKind
from truestep.screening.bench import Bench

Round = Callable[[Bench, int], None]


class Level(IntEnum):
    """How long a screening takes, numbered as in DCGM."""

    QUICK = 1
    MEDIUM = 2
    LONG = 3
    EXTENDED = 4

    @property
    def budget_s(self) -> float:
        """Seconds for all tests together, start-up apart."""
        return {1: 30.0, 2: 110.0, 3: 870.0, 4: 5400.0}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """An operation that a test cannot do without, as `Backend.supports` takes it."""

    op: str
    precision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreeningTest:
    """A declared, seeded, repeatable computation whose answer is known.

    The runner owns seeds, time, isolation, repeats and logs; a test is this declaration and one
    function.

    Attributes:
        id: `family_variant_dtype`. Permanent: never renamed, never reused.
        level: Lowest level at which it runs.
        groups: Names by which it can be chosen.
        stresses: The unit of silicon that it exercises.
        known_because: Why the expected answer is right.
        blind_to: What it cannot see.
        reference: Where its expected values come from.
        needs: Operations it cannot do without.
        run: One round: `run(bench, seed)` computes and hands results to the bench.
        share: Its part of the time budget, relative to the others.
        min_rounds: Rounds that are done even where the time is used up.
        round_s: Seconds that one round may take on one slow core; what a small budget cannot hold
            is left out, and reported as not covered.
        planted_bit: Lowest bit, modulo the width, that its check must see; the self-test flips it.
    """

    id: str
    level: Level
    groups: tuple[str, ...]
    stresses: str
    known_because: str
    blind_to: str
    reference: ReferenceKind
    needs: tuple[Need, ...]
    run: Round
    share: float = 1.0
    min_rounds: int = 1
    round_s: float = 1.0
    planted_bit: int = 0

    @property
    def least_s(self) -> float:
        """Seconds that its least number of rounds may take on one slow core."""
        return self.round_s * self.min_rounds if self.round_s > 1 else 0.0
