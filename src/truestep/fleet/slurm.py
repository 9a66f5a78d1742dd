# SPDX-License-Identifier: Apache-2.0
"""Slurm as a `Scheduler`: its command line tools, asked one at a time, with Operator rights.

Text output is parsed and not `--json`, whose shape changes between releases. A node that is drained
starts no job, also within a reservation: a node is therefore fenced first, then resumed, then given
its job; and drained again before the fence goes.
"""

from __future__ import annotations

import getpass
import math
import os
import re
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from truestep.errors import BackendError, ConfigError
from truestep.fleet.scheduler import MARK, Job, JobState, NodeInfo

BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
DOWN = frozenset(
    {
        "DOWN", "FAIL", "FAILING", "ERROR", "FUTURE", "UNKNOWN", "INVAL", "NOT_RESPONDING",
        "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "POWER_UP", "REBOOT",
        "REBOOT_ISSUED", "REBOOT_REQUESTED",
    }
)  # fmt: skip
FREE = frozenset({"IDLE", "RESERVED", "MAINT", "PLANNED"})
"""A node is idle only where every word of its state is one of these."""

PENDING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED"})
RUNNING = frozenset({"RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING", "STOPPED"})

SETTLES_S = 300.0
"""So long after its start a controller may still set when a node was last busy."""

_STARTED = re.compile(r"^BOOT_TIME\s*=\s*(\S+)", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_FIELD = re.compile(r"(?:^|\s)([A-Z][A-Za-z]*)=")
_STAMP = re.compile(r" \[[^\[\]]*@[^\[\]]*\]$")
_LAST = ("Reason", "Comment", "Extra")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmScheduler:
    """One cluster.

    Attributes:
        user: Who may use the reservations: whoever the screening jobs run as.
        partition: In which jobs run; empty for the default one.
        timeout_s: How long a command may take.
        environment: Variables that the commands get beside those of this process.
        prefix: What stands before every command, such as `sudo -n -u slurm`.
    """

    user: str = field(default_factory=getpass.getuser)
    partition: str = ""
    timeout_s: float = 60.0
    environment: Mapping[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()

    def nodes(self) -> Mapping[str, NodeInfo]:
        """All nodes by name."""
        lines = self._run("scontrol", "-o", "show", "node").splitlines()
        found = [info_of(line) for line in lines if line.startswith("NodeName=")]
        return {info.name: info for info in self._with_known_use(found)}

    def submit(self, job: Job) -> str:
        """Queue a job behind the fence of its node, and give its id."""
        minutes = max(1, math.ceil(job.limit_s / 60))
        last = time.localtime(job.start_by_s + minutes * 60)
        said = self._run(
            "sbatch",
            "--parsable",
            "--exclusive",
            "--nodes=1",
            "--no-requeue",
            f"--nodelist={_sound(job.node)}",
            f"--reservation={_reservation(job.node)}",
            f"--job-name={_sound(job.name)}",
            f"--time={minutes}",
            f"--deadline={time.strftime('%Y-%m-%dT%H:%M:%S', last)}",
            f"--output={job.log}",
            *([f"--partition={self.partition}"] if self.partition else []),
            script=job.script,
        )
        return said.strip().split(";")[0]

    def jobs(self, names: Iterable[str]) -> Mapping[str, tuple[str, JobState]]:
        """Id and state, by name, of those jobs that Slurm still knows."""
        wanted = {_sound(name) for name in names}
        if not wanted:
            return {}
        found: dict[str, tuple[str, JobState]] = {}
        for line in self._run("squeue", "-h", "-t", "all", "-o", "%i %j %T").splitlines():
            words = line.split(" ")
            if len(words) == 3 and words[1] in wanted:
                found[words[1]] = (words[0], _job_state(words[2]))
        return found

    def cancel(self, job_id: str) -> None:
        """End a job, or take it off the queue."""
        self._run("scancel", "--quiet", _sound(job_id), excused="Invalid job id")

    def fence(self, node: str, *, until_s: float) -> bool:
        """Keep others off an idle node until then. False where a job has it."""
        end = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(until_s))
        name = _reservation(node)
        if self._has_fence(name):
            self._run("scontrol", "update", f"reservationname={name}", f"endtime={end}")
            return True
        self._info(node)
        said = self._run(
            "scontrol",
            "create",
            "reservation",
            f"reservationname={name}",
            "starttime=now",
            f"endtime={end}",
            f"users={self.user}",
            f"nodes={node}",
            excused="Requested nodes are busy",
        )
        return not said.startswith("!")

    def unfence(self, node: str) -> None:
        """Take the fence away."""
        name = _reservation(node)
        if self._has_fence(name):
            gone = "Requested reservation is invalid"
            self._run("scontrol", "delete", f"reservationname={name}", excused=gone)

    def drain(self, node: str, reason: str) -> bool:
        """Let jobs end and start no more. False where somebody else's mark is on it."""
        if not (reason == MARK or reason.startswith(f"{MARK}:")) or not reason.isprintable():
            raise ConfigError(f"a mark must begin with {MARK!r}, got {reason!a:.80}.")
        info = self._info(node)
        if info.reason and not info.is_marked_by_us:
            return False
        if not (info.is_drained and info.reason == reason):
            self._run("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")
        after = self._info(node)
        if after.machine != info.machine:
            self.resume(node)
            raise BackendError(
                f"{node} must be one machine, got {after.machine!r} after {info.machine!r}. The "
                "mark was taken back; look at the node and pass again."
            )
        return after.is_drained and after.is_marked_by_us

    def resume(self, node: str) -> bool:
        """Clear our own mark. False where the mark is somebody else's: left alone."""
        info = self._info(node)
        if info.is_drained and not info.is_marked_by_us:
            return False
        if info.is_drained:
            done = "Invalid node state specified"
            self._run("scontrol", "update", f"nodename={node}", "state=resume", excused=done)
        after = self._info(node)
        return not after.is_drained

    def _info(self, node: str) -> NodeInfo:
        said = self._run(
            "scontrol", "-o", "show", "node", _sound(node), excused=f"Node {node} not found"
        )
        lines = [line for line in said.splitlines() if line.startswith("NodeName=")]
        if len(lines) != 1:
            raise ConfigError(f"a node must be one that Slurm knows, got {node!r}.")
        return info_of(lines[0])

    def _with_known_use(self, infos: Sequence[NodeInfo]) -> list[NodeInfo]:
        """The nodes, with a last use that was one.

        A controller that starts sets the time of every node to that of its start, and again when
        the node answers. Then only jobs that it still knows tell of a use.
        """
        match = _STARTED.search(self._run("scontrol", "show", "config"))
        started_s = _time_s(match[1]) if match else None
        if started_s is None:
            return list(infos)
        is_unsure = [
            started_s <= (info.last_busy_s or 0.0) <= started_s + SETTLES_S for info in infos
        ]
        ends = self._last_ends() if any(is_unsure) else {}
        return [
            replace(info, last_busy_s=ends.get(info.name)) if unsure else info
            for info, unsure in zip(infos, is_unsure, strict=True)
        ]

    def _last_ends(self) -> dict[str, float]:
        """When the last job ended on each node, of the jobs that Slurm still knows."""
        ends: dict[str, float] = {}
        for line in self._run("squeue", "-h", "-t", "all", "-o", "%T %e %N").splitlines():
            words = line.split(" ")
            end_s = _time_s(words[1]) if len(words) == 3 else None
            if end_s is None or _job_state(words[0]) is not JobState.ENDED or not words[2]:
                continue
            for name in self._hostnames(words[2]):
                ends[name] = max(end_s, ends.get(name, end_s))
        return ends

    def _hostnames(self, names: str) -> list[str]:
        """The nodes of a list such as `n[0-3]`."""
        if "[" not in names and "," not in names:
            return [names]
        return self._run("scontrol", "show", "hostnames", names).split()

    def _has_fence(self, name: str) -> bool:
        said = self._run("scontrol", "-o", "show", "reservation")
        return any(f"ReservationName={name}" in line.split(" ") for line in said.splitlines())

    def _run(self, *command: str, script: str | None = None, excused: str = "") -> str:
        """What a command said; with `!` before it where it failed for the excused cause."""
        try:
            ran = subprocess.run(
                [*self.prefix, *command],
                input=script or "",
                capture_output=True,
                text=True,
                errors="backslashreplace",
                timeout=self.timeout_s,
                check=False,
                env={**os.environ, **self.environment, "LC_ALL": "C"},
                cwd="/",
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BackendError(
                f"{command[0]} must answer within {self.timeout_s:g} s, got: {error!s:.200}. Pass "
                "again when Slurm is back."
            ) from error
        said = f"{ran.stdout}{ran.stderr}"
        if ran.returncode == 0:
            return ran.stdout
        if excused and excused in said:
            return f"!{said}"
        raise BackendError(
            f"`{' '.join(command[:4])}` must succeed, got {ran.returncode}: "
            f"{ascii(' '.join(said.split()))[1:-1]:.300}. Run this where Slurm answers."
        )


def info_of(line: str) -> NodeInfo:
    """One line of `scontrol -o show node`.

    A word of the state that is not known makes a node neither idle nor busy: it is left alone.
    """
    values = _values(line)
    flags = tuple(re.findall(r"[A-Z_]+", values.get("State", "").upper()))
    if "*" in values.get("State", ""):
        flags = (*flags, "NOT_RESPONDING")
    return NodeInfo(
        name=values.get("NodeName", ""),
        machine=f"{values.get('NodeHostName', '')}/{values.get('NodeAddr', '')}",
        booted_s=_time_s(values.get("BootTime", "")),
        is_idle=bool(flags) and FREE.issuperset(flags),
        is_busy=not BUSY.isdisjoint(flags),
        is_drained=not {"DRAIN", "DRAINED", "DRAINING"}.isdisjoint(flags),
        is_down=not DOWN.isdisjoint(flags),
        reason=_STAMP.sub("", values.get("Reason", "")),
        last_busy_s=_time_s(values.get("LastBusyTime", "")),
        flags=flags,
    )


def _values(line: str) -> dict[str, str]:
    """Names and values of a line. Text of people comes last and may hold anything."""
    values: dict[str, str] = {}
    found = list(_FIELD.finditer(line))
    for match, following in zip(found, [*found[1:], None], strict=True):
        name = match[1]
        is_last = name in _LAST
        end = len(line) if following is None or is_last else following.start()
        values.setdefault(name, line[match.end() : end].strip())
        if is_last:
            break
    return values


def _time_s(text: str) -> float | None:
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None


def _job_state(word: str) -> JobState:
    if word in PENDING:
        return JobState.PENDING
    return JobState.RUNNING if word in RUNNING else JobState.ENDED


def _reservation(node: str) -> str:
    return f"{MARK}_{_sound(node)}"


def _sound(name: str) -> str:
    """A name that cannot be read as several, or as an option.

    Raises:
        ConfigError: It could.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"a name for Slurm must be letters, digits, dots, dashes and underscores, got "
            f"{name!a:.80}."
        )
    return name
