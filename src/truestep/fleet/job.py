# SPDX-License-Identifier: Apache-2.0
"""The job that screens one node: its name, its script, and what it leaves in its folder."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from truestep.fleet.scheduler import Job
from truestep.store.history import Run

EXIT_CODE = "exit-code"
"""The file that a job writes last. Without it the results are not complete."""

NODE = "node"
"""The file that a job writes first: the name of the node it runs on."""

MARKS = "/var/lib/truestep/marks"
"""Where the epilog writes which jobs ran on a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMaker:
    """Writes the jobs of a campaign.

    Attributes:
        results: Folder that the nodes share; each run gets a folder of its own in it.
        command: How the nodes start Truestep.
        arguments: Further ones for `screen`.
        marks: The epilog's file on the nodes; `%n` is the node's name.
        seed: Of every input of the campaign: nodes alike compute alike.
    """

    results: Path
    command: tuple[str, ...] = ("truestep",)
    arguments: tuple[str, ...] = ()
    marks: str = MARKS
    seed: int = 0

    def folder(self, run: Run) -> Path:
        """Where the results of a run go."""
        return self.results / run.id

    def job(self, run: Run) -> Job:
        """The job of a run."""
        folder = self.folder(run)
        return Job(
            name=job_name(run),
            node=run.name,
            script=self._script(run, folder),
            limit_s=run.limit_s,
            start_by_s=run.start_by_s,
            log=str(folder / "job.log"),
        )

    def _script(self, run: Run, folder: Path) -> str:
        screen = [
            *self.command,
            *("screen", "--json", "--run-id", run.id),
            *("--level", str(run.level), "--seed", str(self.seed), "--out", str(folder)),
            *self.arguments,
        ]
        marks = shlex.quote(self.marks.replace("%n", run.name))
        return f"""#!/bin/sh
umask 027
cd -- {shlex.quote(str(folder))} || exit 3
printf '%s\\n' "${{SLURMD_NODENAME:-{shlex.quote(run.name)}}}" > {NODE}
if [ -r {marks} ]; then cat -- {marks} > node.marks; fi
{shlex.join(screen)} > /dev/null 2> screen.err
printf '%s\\n' "$?" > .{EXIT_CODE} && mv -f .{EXIT_CODE} {EXIT_CODE}
"""


def job_name(run: Run) -> str:
    """Made of the run id, so that the job is found again after a crash."""
    return f"truestep-{run.id}"
