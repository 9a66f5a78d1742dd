# SPDX-License-Identifier: Apache-2.0
"""Issued runs, from the fence to the verdict. Each step may be done again after a crash."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from truestep.device import Node
from truestep.errors import BackendError, RecordError
from truestep.fleet.dossiers import dossier_of
from truestep.fleet.job import EXIT_CODE, NODE, JobMaker, job_name
from truestep.fleet.life_cycle import step
from truestep.fleet.plan import Options, Screening
from truestep.fleet.policy import is_cleared, strikes
from truestep.fleet.scheduler import MARK, JobState, NodeInfo, Scheduler
from truestep.reason import Reason
from truestep.record import Record, RecordKind
from truestep.store.durable import make_folder
from truestep.store.history import Entry, History, Run, RunStatus
from truestep.store.history.ingest import ingest_folder
from truestep.transition import NodeState
from truestep.verdict import Outcome, Status, Verdict

FENCE_SLACK_S = 1800.0
"""How long a fence stays after the last moment at which its job may run."""

PROBATION_FENCE_S = 7 * 86_400.0
"""A node on probation is known to have been bad: nobody else gets it while it is screened."""


@dataclass(slots=True)
class Runs:
    """Issues runs and folds in what they found.

    Attributes:
        history: What is known.
        scheduler: Where jobs run.
        jobs: Writes them.
        options: Of the campaign.
        grace_s: How long results may take to be seen after their job has ended.
        clock: Tells the time at which a run is closed: a pass may have waited for the scheduler,
            and what ended meanwhile must not look like a later use. None for that of the pass.
        alerts: What people should know, in order.
    """

    history: History
    scheduler: Scheduler
    jobs: JobMaker
    options: Options
    grace_s: float = 30.0
    clock: Callable[[], float] | None = None
    alerts: list[str] = field(default_factory=list)
    _ended_s: dict[str, float] = field(default_factory=dict)

    def issue(self, screening: Screening, *, now_s: float) -> bool:
        """Fence the node and give out a run for it. False where the node was taken meanwhile."""
        entry, info = screening.candidate.entry, screening.candidate.info
        run = Run(
            id=secrets.token_hex(16),
            key=entry.key,
            name=entry.name,
            campaign=self.options.id,
            occasion=self.options.occasion.value,
            level=screening.level,
            issued_s=now_s,
            start_by_s=now_s + self.options.start_within_s,
            limit_s=screening.limit_s,
            status=RunStatus.ISSUED,
            machine=info.machine if info else "",
        )
        if not self._fence(run, entry):
            return False
        self.history.issue(run, *self._to_screening(entry, now_s))
        self._launch(run)
        return True

    def fold_in(self, nodes: dict[str, NodeInfo], *, now_s: float) -> int:
        """Take in what open runs have left, close those that are over, and launch what was not.

        Returns:
            How many runs were closed.
        """
        runs = self.history.open_runs()
        known = self.scheduler.jobs(job_name(run) for run in runs)
        return sum(self._follow(run, known.get(job_name(run)), nodes, now_s) for run in runs)

    def _follow(
        self, run: Run, job: tuple[str, JobState] | None, nodes: dict[str, NodeInfo], now_s: float
    ) -> bool:
        job_id, state = job or ("", JobState.ENDED)
        if run.status is RunStatus.ISSUED and job is not None:
            self.history.submitted(run.id, job_id)
        if state is JobState.PENDING and now_s > run.start_by_s:
            self.scheduler.cancel(job_id)
            return self._close(run, RunStatus.EXPIRED, now_s)
        info = nodes.get(run.name)
        if state is not JobState.ENDED or (info is not None and info.is_busy):
            return False
        if (self.jobs.folder(run) / EXIT_CODE).exists():
            return self._close(run, RunStatus.FOLDED, now_s)
        if job is None and not (self.jobs.folder(run) / NODE).exists():
            return self._launch_again(run, now_s)
        if now_s - self._ended_s.setdefault(run.id, now_s) < self.grace_s:
            return False
        return self._close(run, RunStatus.LOST, now_s)

    def _launch_again(self, run: Run, now_s: float) -> bool:
        """A run whose job never came to be, or left no trace: it has no result yet, try again."""
        if now_s > run.start_by_s:
            return self._close(run, RunStatus.EXPIRED, now_s)
        if self._fence(run, self.history.entry(run.key)):
            self._launch(run)
        return False

    def _fence(self, run: Run, entry: Entry) -> bool:
        until_s = run.start_by_s + run.limit_s + FENCE_SLACK_S
        if entry.state is NodeState.PROBATION:
            until_s += PROBATION_FENCE_S
        is_fenced = self.scheduler.fence(run.name, until_s=until_s)
        if not is_fenced:
            self.alerts.append(f"{run.name} was taken by a job before it could be screened")
        return is_fenced

    def _launch(self, run: Run) -> None:
        """Submit the job, on a node that was fenced before."""
        if not self.scheduler.resume(run.name):
            self.alerts.append(f"{run.name} waits: somebody else drained it")
        make_folder(self.jobs.folder(run))
        try:
            self.history.submitted(run.id, self.scheduler.submit(self.jobs.job(run)))
        except BackendError as error:
            self.alerts.append(f"the job for {run.name} was refused: {error}")

    def _to_screening(self, entry: Entry, now_s: float) -> list[Record]:
        if entry.state is NodeState.PROBATION:
            return []
        return [self._step(entry, NodeState.SCREENING, Reason.SCREENING_DUE, now_s)]

    def _close(self, run: Run, status: RunStatus, now_s: float) -> bool:
        """Take in what there is, say what follows for the node, and close the run."""
        run = self._ingest(run)
        now_s = max(now_s, self.clock()) if self.clock else now_s
        if status is RunStatus.LOST:
            self.history.append(run.key, self._lost(run, now_s))
        entry = self.history.entry(run.key)
        if entry.state is NodeState.PROBATION:
            # Drained before the fence can go: what is on probation never meets a job.
            self.scheduler.drain(run.name, f"{MARK}:{Reason.REPAIR_DONE} run={run.id}")
        records = self._settled(run, status, now_s)
        if any(r.transition and r.transition.after is not NodeState.SUSPECT for r in records):
            # Before the run is closed: what dies in between is found open, and done again.
            self.scheduler.unfence(run.name)
        self._ended_s.pop(run.id, None)
        return self.history.close_run(run.id, status, *records)

    def _ingest(self, run: Run) -> Run:
        """Take in the results of a run. It moves with its name to a machine that is new there."""
        folder = self.jobs.folder(run)
        if not folder.is_dir():
            return run
        ingested = ingest_folder(self.history, folder)
        self.alerts.extend(f"refused {r.id}: {r.why}" for r in ingested.folded.refused)
        moved = dict(ingested.folded.replaced)
        if run.key in moved:
            self.alerts.append(f"another machine stands behind {run.name}: it is a new node")
        return replace(run, key=moved.get(run.key, run.key))

    def _settled(self, run: Run, status: RunStatus, now_s: float) -> list[Record]:
        """The transition that the end of a run brings, if it brings one."""
        entry, dossier = dossier_of(self.history, run.key, self.options.rules, now_s=now_s)
        if entry.state is not NodeState.SCREENING:
            return []
        if status is RunStatus.EXPIRED:
            return [self._step(entry, _came_from(dossier.records), Reason.NOT_STARTED, now_s)]
        own = [r for r in dossier.records if r.run_id == run.id and r.verdict is not None]
        if is_cleared(dossier, self.options.rules):
            ids = [r.id for r in own]
            return [self._step(entry, NodeState.AVAILABLE, Reason.PASSED, now_s, ids[:1])]
        struck = [i for i in strikes(dossier) if i in {r.id for r in own}]
        return [self._step(entry, NodeState.SUSPECT, _worst(own), now_s, struck)]

    def _lost(self, run: Run, now_s: float) -> Record:
        """That a job ended without a result, as a record: unknown, and counted."""
        entry = self.history.entry(run.key)
        return Record(
            id=f"{run.id}-lost",
            kind=RecordKind.SCREENING,
            run_id=run.id,
            time_s=now_s,
            subject="job",
            node=Node(name=entry.name, board_serial=entry.identity),
            verdict=Verdict(
                outcome=Outcome.UNKNOWN,
                status=Status.ERROR,
                reason=Reason.CRASHED,
                detail="the job ended and left no complete result",
            ),
            is_simulated=self.history.is_simulation,
        )

    def _step(
        self,
        entry: Entry,
        after: NodeState,
        reason: Reason,
        now_s: float,
        records: list[str] | None = None,
    ) -> Record:
        return step(
            entry,
            after,
            reason,
            now_s=now_s,
            records=records or (),
            is_simulated=self.history.is_simulation,
        )


def _came_from(records: tuple[Record, ...]) -> NodeState:
    """Where the node was before it went into screening."""
    for record in reversed(records):
        if record.transition is not None:
            return record.transition.before
    raise RecordError("a node in screening must have a transition that led there, got none.")


def _worst(records: list[Record]) -> Reason:
    """The reason for suspicion: of a fail, else of what is unknown, else that there is no result.

    A run that passed and does not yet clear the node leaves it where it was.
    """
    verdicts = [r.verdict for r in records if r.verdict is not None]
    for outcome in (Outcome.FAIL, Outcome.UNKNOWN, Outcome.PASS):
        for verdict in verdicts:
            if verdict.outcome is outcome:
                return verdict.reason
    return Reason.CRASHED
