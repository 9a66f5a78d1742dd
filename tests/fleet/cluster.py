# SPDX-License-Identifier: Apache-2.0
"""A cluster in memory with a real history, on which campaigns run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fleet.fake_scheduler import FakeScheduler
from truestep.device import Device, Node
from truestep.environment import Environment
from truestep.fleet.campaign import Controller, Pass
from truestep.fleet.carry_out import Hands
from truestep.fleet.job import EXIT_CODE, NODE, JobMaker
from truestep.fleet.life_cycle import state_of, step
from truestep.fleet.plan import Options
from truestep.fleet.policy import Occasion, Rules
from truestep.fleet.runs import Runs
from truestep.fleet.scheduler import JobState
from truestep.reason import Reason
from truestep.record import Record, RecordKind
from truestep.store.history import History
from truestep.store.journal import Journal
from truestep.transition import NodeState
from truestep.verdict import Outcome, Scope, Status, Suspect, Verdict

S = NodeState
NAMES = tuple(f"n{i}" for i in range(8))
START_S = 1_780_000_000.0


@dataclass
class Cluster:
    """A history, a scheduler, and jobs that fail on the nodes of `faulty`."""

    folder: Path
    scheduler: FakeScheduler = field(default_factory=lambda: FakeScheduler.of(NAMES))
    faulty: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    boards: dict[str, str] = field(default_factory=dict)
    cards: dict[str, str] = field(default_factory=dict)
    now_s: float = START_S
    told: list[dict[str, Any]] = field(default_factory=list)
    published: list[tuple[str, Outcome]] = field(default_factory=list)
    rules: Rules = field(default_factory=lambda: Rules(share_out=0.25))

    def __post_init__(self) -> None:
        url = f"sqlite:///{self.folder}/fleet.db"
        self.history = History.create(url, is_simulation=False)
        for name in NAMES:
            self.history.enrol(name, now_s=self.now_s)

    def controller(self, occasion: Occasion, **options: Any) -> Controller:
        chosen = Options(id=f"c-{occasion}", occasion=occasion, rules=self.rules, **options)
        jobs = JobMaker(results=self.folder / "results")
        return Controller(
            history=self.history,
            scheduler=self.scheduler,
            runs=Runs(history=self.history, scheduler=self.scheduler, jobs=jobs, options=chosen),
            hands=Hands(
                history=self.history,
                scheduler=self.scheduler,
                publish=lambda name, outcome, _: self.published.append((name, outcome)),
                tell=self.told.append,
            ),
            options=chosen,
        )

    def run_jobs(self) -> None:
        """All jobs that wait, from their first line to their last."""
        for name, job in self.scheduler.queue.items():
            if self.scheduler.states[name] is JobState.PENDING:
                if self.scheduler.infos[job.node].is_drained:
                    continue
                self.now_s += 1
                self.scheduler.states[name] = JobState.ENDED
                if job.node in self.silent:
                    continue
                run_id = name.removeprefix("truestep-")
                folder = self.folder / "results" / run_id
                (folder / NODE).write_text(f"{job.node}\n")
                Journal(folder / "journal.jsonl").append(self._record(run_id, job.node))
                (folder / EXIT_CODE).write_text("0\n")

    def _record(self, run_id: str, node: str) -> Record:
        is_bad, board = node in self.faulty, self.boards.get(node, node)
        return Record(
            id=f"{run_id}-0",
            kind=RecordKind.SCREENING,
            run_id=run_id,
            time_s=self.now_s,
            subject="matmul",
            node=Node(name=node, board_serial=f"B-{board}"),
            device=Device(
                id="cuda:0", kind="cuda", model="H200", serial=f"G-{self.cards.get(node, board)}"
            ),
            environment=Environment(entries={"driver": "1"}),
            verdict=Verdict(
                outcome=Outcome.FAIL if is_bad else Outcome.PASS,
                status=Status.COMPLETE,
                reason=Reason.MISCOMPARE_REPEATED if is_bad else Reason.PASSED,
                num_comparisons=10,
                selftest_caught=True,
                is_confirmed=is_bad,
                repeats=(5, 5) if is_bad else (0, 0),
                suspect=Suspect(scope=Scope.DEVICE, name="cuda:0") if is_bad else None,
            ),
        )

    def run(self, occasion: Occasion, *, passes: int = 12, **options: Any) -> Pass:
        controller = self.controller(occasion, **options)
        for _ in range(passes):
            self.now_s += 10
            done = controller.one_pass(now_s=self.now_s)
            self.run_jobs()
            if done.is_over:
                break
        return done

    def states(self) -> dict[str, NodeState]:
        return {e.name: e.state for e in self.history.entries()}

    def use_all(self) -> None:
        """Jobs take all nodes that are free and give them back."""
        for entry in self.history.entries(states={S.AVAILABLE}):
            used = [(S.AVAILABLE, S.IN_USE), (S.IN_USE, S.RECLAIMED)]
            for before, after in used:
                self.history.append(
                    entry.key,
                    step(replace(entry, state=before), after, Reason.JOB_ENDED, now_s=self.now_s),
                )

    def repair(self, name: str) -> None:
        self.faulty.discard(name)
        entry = self.history.find(name)
        done = step(entry, S.PROBATION, Reason.REPAIR_DONE, now_s=self.now_s)
        self.history.append(entry.key, done)

    def check(self) -> None:
        """What must hold whatever was killed."""
        for entry in self.history.entries():
            assert state_of(self.history.records(entry.key)) is entry.state
        transitions = Counter(
            (e.key, r.transition.after)
            for e in self.history.entries()
            for r in self.history.records(e.key, kinds={RecordKind.TRANSITION})
            if r.transition and r.transition.after in (S.DRAINING, S.IN_REPAIR)
        )
        assert set(transitions.values()) <= {1}
        actions = Counter(
            (e.key, r.subject)
            for e in self.history.entries()
            for r in self.history.records(e.key, kinds={RecordKind.ACTION})
        )
        assert set(actions.values()) <= {1}
