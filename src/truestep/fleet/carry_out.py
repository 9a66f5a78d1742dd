# SPDX-License-Identifier: Apache-2.0
"""Carrying out an action: written down first, done so that doing it again is harmless, finished.

An action that was begun by a controller that died is found in the history and done again.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from truestep.action import Action, ActionKind
from truestep.device import Node
from truestep.errors import RecordError
from truestep.fleet.life_cycle import step
from truestep.fleet.scheduler import MARK, NodeInfo, Scheduler
from truestep.reason import Reason
from truestep.record import SCHEMA_VERSION, Record, RecordKind
from truestep.store.history import Entry, History
from truestep.store.schema import to_plain
from truestep.transition import NodeState
from truestep.verdict import Outcome

Publish = Callable[[str, Outcome, str], None]
"""Called with a node's name, an outcome and a reason code: what the node's prolog shall know."""

Tell = Callable[[dict[str, Any]], None]
"""Called with one document for each action that was finished: paging, tickets."""

AFTER = {
    ActionKind.DRAIN: NodeState.DRAINING,
    ActionKind.QUARANTINE: NodeState.QUARANTINED,
    ActionKind.REPAIR: NodeState.IN_REPAIR,
    ActionKind.RETIRE: NodeState.RETIRED,
    ActionKind.RELEASE: NodeState.AVAILABLE,
}
"""Where each action leads. A hold leads nowhere: it asks a person."""


@dataclass(slots=True)
class Hands:
    """Carries out actions, each once.

    Attributes:
        history: Where they are written down.
        scheduler: On which they are carried out.
        publish: Tells the node's prolog.
        tell: Tells people.
        alerts: What went otherwise than planned.
    """

    history: History
    scheduler: Scheduler
    publish: Publish
    tell: Tell
    alerts: list[str] = field(default_factory=list)

    def carry_out(self, entry: Entry, action: Action, *, now_s: float) -> bool:
        """Carry an action out. False where it is done already, or the machine was exchanged.

        Guarantees:
            Done at most once, however often it is called and wherever it is interrupted.
        """
        action = replace(action, is_dry_run=False)
        if action.kind is ActionKind.DRAIN and not self._is_same_machine(entry, action):
            return False
        if not self.history.begin(entry.key, action, now_s=now_s):
            return False
        self._do(entry, action)
        self.history.finish(entry.key, action, *self._records(entry, action, now_s))
        self.tell(self._document(entry, action))
        return True

    def finish_begun(self, *, now_s: float) -> int:
        """Carry out again what a controller began before it died."""
        begun = self.history.begun()
        for key, action in begun:
            self.carry_out(self.history.entry(key), action, now_s=now_s)
        return len(begun)

    def settle_drained(self, nodes: dict[str, NodeInfo], *, now_s: float) -> int:
        """Book draining nodes as quarantined once no job runs or completes on them."""
        num_settled = 0
        for entry in self.history.entries(states={NodeState.DRAINING}):
            info = nodes.get(entry.name)
            if info is None or info.is_busy:
                continue
            if not info.is_drained:
                self.alerts.append(f"{entry.name} was to be drained, and somebody resumed it")
                continue
            record = self._step(entry, NodeState.QUARANTINED, self._why(entry), now_s)
            self.history.append(entry.key, record)
            self.scheduler.unfence(entry.name)
            num_settled += 1
        return num_settled

    def _why(self, entry: Entry) -> Reason:
        """Why a node is draining."""
        taken = self.history.records(entry.key, kinds={RecordKind.TRANSITION})[-1].transition
        return taken.reason if taken else Reason.RETEST_FAILED

    def _do(self, entry: Entry, action: Action) -> None:
        """What the scheduler and the node's prolog are told; harmless when told again."""
        name, reason = entry.name, action.reason
        if action.kind in (ActionKind.DRAIN, ActionKind.QUARANTINE):
            if not self.scheduler.drain(name, f"{MARK}:{reason} records={len(action.records)}"):
                self.alerts.append(f"{name} is drained by somebody else; their mark stands")
            self.publish(name, Outcome.FAIL, reason)
        if action.kind is ActionKind.RELEASE:
            self.publish(name, Outcome.PASS, reason)
            if not self.scheduler.resume(name):
                self.alerts.append(f"{name} may return, and somebody else's mark is on it")
        if action.kind in (ActionKind.QUARANTINE, ActionKind.RELEASE):
            self.scheduler.unfence(name)

    def _is_same_machine(self, entry: Entry, action: Action) -> bool:
        """Whether the machine behind the name is the one that the evidence is about."""
        runs = {run.id: run for run in self.history.runs_of(entry.key)}
        issued = (runs.get(self.history.record(i)[1].run_id) for i in action.records)
        machines = {run.machine for run in issued if run is not None and run.machine}
        info = self.scheduler.nodes().get(entry.name)
        if info is not None and (not machines or machines == {info.machine}):
            return True
        found = "nothing" if info is None else info.machine
        self.alerts.append(
            f"{entry.name} was not drained: behind the name must be {' or '.join(machines)}, "
            f"got {found}. Screen it again."
        )
        return False

    def _records(self, entry: Entry, action: Action, now_s: float) -> list[Record]:
        done = Record(
            id=uuid4().hex,
            kind=RecordKind.ACTION,
            run_id="",
            time_s=now_s,
            subject=action.kind.value,
            node=Node(name=entry.name, board_serial=entry.identity),
            action=action,
            is_simulated=self.history.is_simulation,
        )
        after = AFTER.get(action.kind)
        if after is None:
            return [done]
        reason = Reason.REPAIR_STARTED if after is NodeState.IN_REPAIR else _reason(action)
        return [done, self._step(entry, after, reason, now_s, action.records)]

    def _step(
        self,
        entry: Entry,
        after: NodeState,
        reason: Reason,
        now_s: float,
        records: tuple[str, ...] = (),
    ) -> Record:
        return step(
            entry,
            after,
            reason,
            now_s=now_s,
            records=records,
            is_simulated=self.history.is_simulation,
        )

    def _document(self, entry: Entry, action: Action) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "action": to_plain(action),
            "next_action": _reason(action).next_action,
            "node": {"name": entry.name, "identity": entry.identity, "rack": entry.rack},
            "state": {"before": entry.state.value, "after": AFTER.get(action.kind, entry.state)},
            "is_simulation": self.history.is_simulation,
        }


def _reason(action: Action) -> Reason:
    return next(reason for reason in Reason if reason.value == action.reason)


def command_teller(command: str, alerts: list[str], *, limit_s: float = 30.0) -> Tell:
    """Tells a command: the document as JSON on its standard input, once for each action.

    A command that fails or hangs is said and changes nothing.

    Raises:
        RecordError: The command is empty.
    """
    arguments = shlex.split(command)
    if not arguments:
        raise RecordError("--on-action must name a command, got nothing.")

    def tell(document: dict[str, Any]) -> None:
        try:
            ran = subprocess.run(
                arguments,
                input=json.dumps(document),
                text=True,
                timeout=limit_s,
                check=False,
                stdout=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            alerts.append(f"--on-action {Path(arguments[0]).name} failed: {error}")
        else:
            if ran.returncode:
                name = Path(arguments[0]).name
                alerts.append(f"--on-action {name} ended with {ran.returncode}")

    return tell
