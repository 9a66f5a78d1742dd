# SPDX-License-Identifier: Apache-2.0
"""What a person decides of a node: take it out, keep it for study, give it back."""

from __future__ import annotations

from dataclasses import dataclass, replace

from truestep.action import Action, ActionKind
from truestep.errors import ConfigError
from truestep.fleet.carry_out import Hands
from truestep.fleet.life_cycle import step
from truestep.fleet.scheduler import MARK
from truestep.reason import Reason
from truestep.record import Record
from truestep.store.history import Entry
from truestep.transition import NodeState
from truestep.verdict import Outcome

S = NodeState

TO_DRAINING = {
    S.AVAILABLE: (S.SUSPECT, S.DRAINING),
    S.IN_USE: (S.SUSPECT, S.DRAINING),
    S.SUSPECT: (S.DRAINING,),
}
TO_PROBATION = {
    S.QUARANTINED: (S.IN_REPAIR, S.PROBATION),
    S.HELD_FOR_STUDY: (S.IN_REPAIR, S.PROBATION),
    S.IN_REPAIR: (S.PROBATION,),
}
TO_AVAILABLE = {
    **TO_PROBATION,
    S.SUSPECT: (S.SCREENING,),
    S.PROBATION: (),
}
"""The steps before the last one, which is a release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Carries out what a person decides, each step with the reason `person_decided`.

    Attributes:
        hands: Which touch scheduler and history.
        now_s: Seconds since the epoch.
    """

    hands: Hands
    now_s: float

    def hold(self, entry: Entry) -> str:
        """Keep a quarantined node for study; take any other out of the pool. What was done.

        Raises:
            ConfigError: The node is where neither can be done, or somebody else drained it.
        """
        if entry.state is S.QUARANTINED:
            self._walk(entry, (S.HELD_FOR_STUDY,), Reason.PERSON_DECIDED)
            return "held for study"
        steps = self._steps(entry, TO_DRAINING, "be held")
        if not self.hands.scheduler.drain(entry.name, f"{MARK}:{Reason.PERSON_DECIDED}"):
            raise ConfigError(
                f"{entry.name} must carry no mark of somebody else, got one. It takes no jobs."
            )
        self._walk(entry, steps, Reason.PERSON_DECIDED)
        return "draining"

    def repaired(self, entry: Entry) -> str:
        """Put a node that was repaired on probation. What was done.

        Raises:
            ConfigError: The node was not taken out.
        """
        steps = self._steps(entry, TO_PROBATION, "be repaired")
        # The epilog of the screening to come fetches it: the fail must not outlive the repair.
        self.hands.publish(entry.name, Outcome.UNKNOWN, Reason.REPAIR_DONE.value)
        self._walk(entry, steps, Reason.REPAIR_DONE)
        return "on probation: run a campaign with --occasion repair"

    def release(self, entry: Entry, *, is_forced: bool) -> str:
        """Give a node back. What was done.

        A node that is held for study goes back into quarantine. Any other is given to jobs without
        a screening, and only where it is forced.

        Raises:
            ConfigError: It must be forced, or the node is where it cannot be done.
        """
        if entry.state is S.HELD_FOR_STUDY and not is_forced:
            self._walk(entry, (S.QUARANTINED,), Reason.PERSON_DECIDED)
            return "back in quarantine"
        steps = self._steps(entry, TO_AVAILABLE, "be released")
        if not is_forced:
            raise ConfigError(
                f"{entry.name} must pass a screening before it takes jobs, got {entry.state!s}. "
                "Say --repaired when it was repaired, or --force to give it to jobs as it is."
            )
        moved = self._walk(entry, steps, Reason.PERSON_DECIDED)
        action = Action(
            kind=ActionKind.RELEASE,
            node=entry.identity or entry.name,
            reason=Reason.PERSON_DECIDED.value,
        )
        self.hands.carry_out(moved, action, now_s=self.now_s)
        return (
            "available, without a screening; run truestep-epilog.sh there, or its prolog still "
            "reads the old verdict"
        )

    def _steps(
        self, entry: Entry, known: dict[NodeState, tuple[NodeState, ...]], what: str
    ) -> tuple[NodeState, ...]:
        if entry.state not in known:
            raise ConfigError(
                f"{entry.name} must be {' or '.join(known)} to {what}, got {entry.state!s}."
            )
        return known[entry.state]

    def _walk(self, entry: Entry, states: tuple[NodeState, ...], reason: Reason) -> Entry:
        """All steps together; the node as it is then."""
        records: list[Record] = []
        for state in states:
            is_simulated = self.hands.history.is_simulation
            records.append(step(entry, state, reason, now_s=self.now_s, is_simulated=is_simulated))
            entry = replace(entry, state=state)
        self.hands.history.append(entry.key, *records)
        return entry
