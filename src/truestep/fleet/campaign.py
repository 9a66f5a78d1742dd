# SPDX-License-Identifier: Apache-2.0
"""One pass of a campaign: observe, fold in, decide, carry out, issue. To resume is to pass again.

A pass may die at any point. What it had begun is written down before the scheduler is touched, and
the next pass finishes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from truestep.fleet.carry_out import Hands
from truestep.fleet.dossiers import dossiers
from truestep.fleet.life_cycle import step
from truestep.fleet.plan import Candidate, Options, Plan, plan
from truestep.fleet.runs import Runs
from truestep.fleet.scheduler import NodeInfo, Scheduler
from truestep.reason import Reason
from truestep.record import Record, RecordKind
from truestep.store.history import Entry, History
from truestep.transition import NodeState

CLOCK_S = 2.0
"""How far the clocks of scheduler and controller may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What one pass did, or in a dry run would do.

    Attributes:
        plan: What was to be done.
        num_closed: Runs that ended.
        num_issued: Runs that were given out.
        num_done: Actions that were carried out, and nodes that came to rest in quarantine.
        num_open: Runs that are open now.
        num_draining: Nodes that wait for their jobs to end.
        alerts: What people should know.
    """

    plan: Plan
    num_closed: int = 0
    num_issued: int = 0
    num_done: int = 0
    num_open: int = 0
    num_draining: int = 0
    alerts: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether another pass now would find nothing to do."""
        did = self.num_closed + self.num_issued + self.num_done
        return not (did or self.num_open or self.num_draining)


@dataclass(slots=True)
class Controller:
    """The only controller of a fleet, while it passes.

    Attributes:
        history: What is known.
        scheduler: Where nodes are fenced, screened, drained and resumed.
        runs: Issues runs and folds them in.
        hands: Carries out actions.
        options: Of the campaign.
    """

    history: History
    scheduler: Scheduler
    runs: Runs
    hands: Hands
    options: Options
    _told: set[str] = field(default_factory=set)

    def look(self, *, now_s: float) -> Pass:
        """The plan as it stands. Nothing is touched: the dry run."""
        nodes = dict(self.scheduler.nodes())
        return Pass(plan=self._plan(nodes, now_s), num_open=len(self.history.open_runs()))

    def one_pass(self, *, now_s: float) -> Pass:
        """Do what can be done now.

        Raises:
            BackendError: The scheduler cannot be asked.
            RecordError: The history cannot be read or written. Pass again when it can.
        """
        nodes = dict(self.scheduler.nodes())
        self._enrol(nodes, now_s)
        num_done = self.hands.finish_begun(now_s=now_s)
        num_closed = self.runs.fold_in(nodes, now_s=now_s)
        num_done += self.hands.settle_drained(nodes, now_s=now_s)
        self._free_screening(now_s)
        self._observe_use(nodes, now_s)
        todo = self._plan(nodes, now_s)
        for candidate, action in (*todo.actions, *todo.held):
            num_done += self.hands.carry_out(candidate.entry, action, now_s=now_s)
        num_issued = sum(self.runs.issue(s, now_s=now_s) for s in todo.screenings)
        return Pass(
            plan=todo,
            num_closed=num_closed,
            num_issued=num_issued,
            num_done=num_done,
            num_open=len(self.history.open_runs()),
            num_draining=len(self.history.entries(states={NodeState.DRAINING})),
            alerts=self._new_alerts(),
        )

    def _plan(self, nodes: dict[str, NodeInfo], now_s: float) -> Plan:
        open_runs = {run.key: run for run in self.history.open_runs()}
        candidates = [
            Candidate(entry=e, dossier=d, info=nodes.get(e.name), run=open_runs.get(e.key))
            for e, d in dossiers(self.history, self.options.rules, now_s=now_s)
        ]
        runs = self.history.runs_in(self.options.id)
        return plan(candidates, self.options, runs=runs, now_s=now_s)

    def _enrol(self, nodes: dict[str, NodeInfo], now_s: float) -> None:
        """Take nodes in that the scheduler has and the history does not know."""
        known = {entry.name for entry in self.history.entries()}
        for name in sorted(nodes.keys() - known):
            self.history.enrol(name, now_s=now_s)

    def _free_screening(self, now_s: float) -> None:
        """Bring back what is in screening without a run: its machine was replaced meanwhile."""
        keys = {run.key for run in self.history.open_runs()}
        for entry in self.history.entries(states={NodeState.SCREENING}):
            if entry.key not in keys:
                (back,) = [
                    r.transition.before
                    for r in self.history.records(entry.key, kinds={RecordKind.TRANSITION})[-1:]
                    if r.transition is not None
                ]
                self.history.append(entry.key, self._step(entry, back, now_s, Reason.NOT_STARTED))

    def _observe_use(self, nodes: dict[str, NodeInfo], now_s: float) -> None:
        """Book which nodes jobs took and gave back."""
        states = {NodeState.AVAILABLE, NodeState.IN_USE, NodeState.RECLAIMED}
        for entry in self.history.entries(states=states):
            info = nodes.get(entry.name)
            # What the scheduler said of a node that moved since then is out of date.
            if info is not None and entry.since_s < now_s:
                self.history.append(entry.key, *self._use(entry, info, now_s))

    def _use(self, entry: Entry, info: NodeInfo, now_s: float) -> list[Record]:
        if info.is_busy:
            is_known = entry.state is NodeState.IN_USE
            return [] if is_known else [self._step(entry, NodeState.IN_USE, now_s)]
        if entry.state is NodeState.IN_USE:
            return [self._step(entry, NodeState.RECLAIMED, now_s)]
        is_used = (info.last_busy_s or 0.0) > entry.since_s + CLOCK_S
        if entry.state is NodeState.AVAILABLE and is_used:
            taken = self._step(entry, NodeState.IN_USE, now_s)
            in_use = replace(entry, state=NodeState.IN_USE)
            return [taken, self._step(in_use, NodeState.RECLAIMED, now_s)]
        return []

    def _step(
        self, entry: Entry, after: NodeState, now_s: float, reason: Reason | None = None
    ) -> Record:
        if reason is None:
            reason = Reason.JOB_STARTED if after is NodeState.IN_USE else Reason.JOB_ENDED
        return step(entry, after, reason, now_s=now_s, is_simulated=self.history.is_simulation)

    def _new_alerts(self) -> tuple[str, ...]:
        """What was not said before."""
        found = [*self.runs.alerts, *self.hands.alerts]
        self.runs.alerts.clear()
        self.hands.alerts.clear()
        new = tuple(dict.fromkeys(a for a in found if a not in self._told))
        self._told.update(new)
        return new
