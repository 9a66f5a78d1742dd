# SPDX-License-Identifier: Apache-2.0
"""A scheduler in memory: jobs run when the test says so. It can die before any call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from truestep.fleet.scheduler import Job, JobState, NodeInfo


class DiedError(Exception):
    """The controller was killed before this call took effect, or just after."""


@dataclass(slots=True)
class FakeScheduler:
    """Keeps to the protocol of `Scheduler`, and counts what is done to each node."""

    infos: dict[str, NodeInfo]
    queue: dict[str, Job] = field(default_factory=dict)
    states: dict[str, JobState] = field(default_factory=dict)
    fences: dict[str, float] = field(default_factory=dict)
    log: list[tuple[str, str]] = field(default_factory=list)
    dies_in: int | None = None

    @classmethod
    def of(cls, names: Iterable[str]) -> FakeScheduler:
        return cls({n: NodeInfo(name=n, machine=f"at-{n}", is_idle=True) for n in names})

    def nodes(self) -> Mapping[str, NodeInfo]:
        self._call("nodes", "")
        return dict(self.infos)

    def submit(self, job: Job) -> str:
        self._call("submit", job.node)
        assert job.name not in self.queue, "a job was submitted twice"
        assert job.node in self.fences, "a job must run behind a fence"
        self.queue[job.name] = job
        self.states[job.name] = JobState.PENDING
        self._call("submitted", job.node)
        return f"id-{job.name}"

    def jobs(self, names: Iterable[str]) -> Mapping[str, tuple[str, JobState]]:
        self._call("jobs", "")
        return {n: (f"id-{n}", self.states[n]) for n in names if n in self.states}

    def cancel(self, job_id: str) -> None:
        self._call("cancel", job_id)
        self.states[job_id.removeprefix("id-")] = JobState.ENDED

    def fence(self, node: str, *, until_s: float) -> bool:
        self._call("fence", node)
        if self.infos[node].is_busy:
            return False
        self.fences[node] = until_s
        return True

    def unfence(self, node: str) -> None:
        self._call("unfence", node)
        self.fences.pop(node, None)

    def drain(self, node: str, reason: str) -> bool:
        self._call("drain", node)
        info = self.infos[node]
        if info.is_drained and not info.is_marked_by_us:
            return False
        self.infos[node] = replace(info, is_drained=True, is_idle=False, reason=reason)
        self._call("drained", node)
        return True

    def resume(self, node: str) -> bool:
        self._call("resume", node)
        info = self.infos[node]
        if info.is_drained and not info.is_marked_by_us:
            return False
        self.infos[node] = replace(info, is_drained=False, is_idle=True, reason="")
        return True

    def _call(self, what: str, node: str) -> None:
        if self.dies_in is not None:
            self.dies_in -= 1
            if self.dies_in < 0:
                raise DiedError(what)
        self.log.append((what, node))
