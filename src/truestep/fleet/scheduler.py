# SPDX-License-Identifier: Apache-2.0
"""What a fleet needs of the cluster's scheduler: the `Scheduler` protocol and what it speaks in.

Every method may be called again after a crash: doing what is already done changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

MARK = "truestep"
"""How the reason of every mark begins that this tool sets. No other mark is ever cleared."""


class JobState(StrEnum):
    """Where a job is. What the scheduler no longer knows is not in the answer at all."""

    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """What the scheduler says of a node now.

    Attributes:
        name: As the scheduler calls it.
        machine: What is behind the name: an address, a machine id. Another value, another machine.
        booted_s: When it booted, seconds since the epoch; None where that is not known.
        is_idle: No job runs or completes on it and it takes jobs. A fence does not count.
        is_busy: A job runs or completes on it.
        is_drained: It takes no new jobs because of a mark.
        is_down: It does not answer, or is powered down.
        reason: Text of the mark; empty without one.
        last_busy_s: When a job last ran on it; None where that is not known.
        flags: The scheduler's own words for its state, for people.
    """

    name: str
    machine: str = ""
    booted_s: float | None = None
    is_idle: bool = False
    is_busy: bool = False
    is_drained: bool = False
    is_down: bool = False
    reason: str = ""
    last_busy_s: float | None = None
    flags: tuple[str, ...] = ()

    @property
    def is_marked_by_us(self) -> bool:
        """Whether the mark on it is one that this tool set."""
        return self.reason == MARK or self.reason.startswith(f"{MARK}:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One exclusive job on one node.

    Attributes:
        name: Made of the run id, so that it is found again by it. At most 60 letters, digits, `-`.
        node: Name of the node.
        script: Text of the shell script that it runs.
        limit_s: Longest it may run.
        start_by_s: Time, seconds since the epoch, after which it is not started any more.
        log: File for its output.
    """

    name: str
    node: str
    script: str
    limit_s: float
    start_by_s: float
    log: str


class Scheduler(Protocol):
    """Nodes, jobs, fences and marks of one cluster.

    Every method raises `BackendError` where the scheduler cannot be asked or refuses, and
    `ConfigError` for a node that it does not know.
    """

    def nodes(self) -> Mapping[str, NodeInfo]:
        """All nodes by name."""

    def submit(self, job: Job) -> str:
        """Queue a job behind the fence of its node, and give its id."""

    def jobs(self, names: Iterable[str]) -> Mapping[str, tuple[str, JobState]]:
        """Id and state, by name, of those jobs that the scheduler still knows."""

    def cancel(self, job_id: str) -> None:
        """End a job, or take it off the queue."""

    def fence(self, node: str, *, until_s: float) -> bool:
        """Keep others off an idle node until then; moved where there is a fence already.

        False, and no fence, where a job of somebody else has the node.
        """

    def unfence(self, node: str) -> None:
        """Take the fence away."""

    def drain(self, node: str, reason: str) -> bool:
        """Let jobs end and start no more. False where somebody else's mark is on it: left alone.

        Args:
            node: Its name.
            reason: Begins with `MARK`.
        """

    def resume(self, node: str) -> bool:
        """Clear our own mark. False where the mark is somebody else's: left alone."""
