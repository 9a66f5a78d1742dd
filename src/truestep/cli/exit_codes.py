# SPDX-License-Identifier: Apache-2.0
"""From what was found to the exit status of the process."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from truestep.record import Record
from truestep.verdict import Outcome, Scope

PASSED, DEFECT, NOT_JUDGED = 0, 1, 2


class ExitStyle(StrEnum):
    """Who reads the exit status."""

    STANDARD = "standard"
    SLURM = "slurm"
    NAGIOS = "nagios"


def exit_code(outcome: Outcome, records: Iterable[Record], style: ExitStyle) -> int:
    """The exit status.

    `standard`: 0 every requested device passed, 1 a defect was found, 2 nothing could be judged.
    `slurm`: 1 only for a confirmed fail of this node's own hardware, named by a contrast: in a
    prolog any other number drains the node, and a bad library must not drain a cluster. All else
    is 0. `nagios`: 0 OK, 2 critical, 3 unknown.
    """
    if style is ExitStyle.SLURM:
        return DEFECT if any(_is_own_confirmed_fail(r) for r in records) else PASSED
    if style is ExitStyle.NAGIOS:
        return {Outcome.PASS: 0, Outcome.FAIL: 2, Outcome.UNKNOWN: 3}[outcome]
    return {Outcome.PASS: PASSED, Outcome.FAIL: DEFECT, Outcome.UNKNOWN: NOT_JUDGED}[outcome]


def _is_own_confirmed_fail(record: Record) -> bool:
    verdict = record.verdict
    if verdict is None or verdict.outcome is not Outcome.FAIL or not verdict.is_confirmed:
        return False
    foreign = (Scope.INPUT_DATA, Scope.SOFTWARE_OR_PLATFORM, Scope.UNKNOWN)
    return verdict.suspect is None or verdict.suspect.scope not in foreign
