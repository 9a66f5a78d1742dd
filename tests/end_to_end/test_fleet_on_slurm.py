# SPDX-License-Identifier: Apache-2.0
"""The whole life of nodes, by command, on a real Slurm cluster of eight virtual nodes."""

from __future__ import annotations

import random
import shlex
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from end_to_end.cli import COMMAND, environment, run, start, strict_json
from postgres import Postgres, running_postgres
from slurm_cluster import Cluster, running_cluster
from truestep.cli.fleet.opening import open_history
from truestep.fleet.life_cycle import state_of
from truestep.record import RecordKind
from truestep.transition import NodeState

pytestmark = pytest.mark.slow

SCREEN = (
    *("--backend", "numpy", "--minutes", "0.01", "--simulate-devices", "2"),
    *("--test", "matmul", "--level", "1"),
)
FAULT = "flip:matmul/fp32,rate=0.5,bit=20,device=sim:1"


@dataclass
class Fleet:
    """A simulation fleet on a cluster. A node is faulty while a file is named after it."""

    folder: Path
    cluster: Cluster
    db: Postgres | None = None

    def __post_init__(self) -> None:
        self.path = self.folder / "fleet"
        self.faults = self.folder / "faults"
        self.faults.mkdir()
        self.env = environment(**self.cluster.environment, TRUESTEP_FLEET=str(self.path))
        self.wrapper = self.folder / "on-node"
        self.wrapper.write_text(
            f'#!/bin/sh\n[ -e {self.faults}/$SLURMD_NODENAME ] && set -- "$@" --simulate {FAULT}\n'
            f'exec {shlex.join(COMMAND)} "$@"\n'
        )
        self.wrapper.chmod(0o755)
        self.fleet("init", "--simulation", *(["--db", self.db.new_database()] if self.db else []))
        with self.cluster.node_conf.open("a") as conf:
            conf.write(f"drop={self.path}/verdicts\nkey={self.path}/signing-key.pub\n")
        tables = [f'[nodes.{n}]\nserial = "SIM-{n}"\n' for n in self.cluster.names]
        (self.folder / "map.toml").write_text("".join(tables))
        self.fleet("map", self.folder / "map.toml")

    def fleet(self, *arguments: object) -> str:
        ended = run("fleet", *arguments, env=self.env)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def campaign(self, occasion: str, *more: str) -> subprocess.Popen[str]:
        marks = f"{self.cluster.folder}/nodes/%n/marks"
        return start(
            *("fleet", "campaign", "--occasion", occasion, "--apply", "--json"),
            *("--cap", "1"),  # the nodes are one machine, and share the locks of its devices
            *("--rule", "share_out=0.25", "--user", "root", "--every-s", "0.5", "--marks", marks),
            *("--command", self.wrapper, "--limit-s", "60", *more, "--", *SCREEN),
            env=self.env,
        )

    def finish(self, occasion: str, *more: str) -> list[Any]:
        with self.campaign(occasion, *more) as process:
            output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        return [strict_json(line) for line in output.splitlines()]

    def states(self) -> dict[str, NodeState]:
        with open_history(self.path) as history:
            return {e.name: e.state for e in history.entries()}

    def use_all(self) -> list[str]:
        """A job of somebody on every node; their ids, in the order of the nodes."""
        job = ("--parsable", "-o", "/dev/null", "--wrap", "sleep 1")
        ids = [self.cluster.run("sbatch", "-w", n, *job).strip() for n in self.cluster.names]
        deadline = time.monotonic() + 60
        while self.cluster.run("squeue", "-h").strip():
            assert time.monotonic() < deadline
            time.sleep(0.2)
        return ids

    def drained(self) -> set[str]:
        lines = self.cluster.run("sinfo", "-h", "-N", "-t", "drain", "-o", "%N %E").split("\n")
        return {line.split()[0] for line in lines if "truestep:retest_failed" in line}

    def check(self) -> None:
        """No node in two states, no action twice, nothing refused."""
        with open_history(self.path) as history:
            for entry in history.entries():
                assert state_of(history.records(entry.key)) is entry.state
                done = history.records(entry.key, kinds={RecordKind.ACTION})
                subjects = [r.subject for r in done]
                assert len(subjects) == len(set(subjects)), subjects
            assert history.refused() == ()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with running_cluster() as cluster:
        yield Fleet(tmp_path, cluster)


@pytest.fixture
def fleet_on_postgres(tmp_path: Path) -> Iterator[Fleet]:
    with running_cluster() as cluster, running_postgres() as server:
        yield Fleet(tmp_path, cluster, server)


def test_nodes_that_went_bad_in_use_are_found_repaired_and_returned(fleet: Fleet) -> None:
    fleet.finish("install")
    assert set(fleet.states().values()) == {NodeState.AVAILABLE}
    ids = fleet.use_all()
    for name in ("n2", "n5"):
        (fleet.faults / name).touch()
    passes = fleet.finish("reclaim")
    states = fleet.states()
    assert {n for n, s in states.items() if s is not NodeState.AVAILABLE} == {"n2", "n5"}, passes
    assert states["n2"] is NodeState.IN_REPAIR
    assert fleet.drained() == {"n2", "n5"}
    found = strict_json(fleet.fleet("incident", "n2", "--format", "json"))["incident"]
    assert found["sound_s"] < found["bad_s"]
    assert ids[2] in [job["id"] for job in found["jobs"]]
    assert ids[3] not in [job["id"] for job in found["jobs"]]
    for name in ("n2", "n5"):
        (fleet.faults / name).unlink()
    options = ("--user", "root")
    fleet.fleet("release", "--repaired", *options, "n2", "n5")
    assert fleet.states()["n2"] is NodeState.PROBATION
    fleet.finish("repair")
    assert set(fleet.states().values()) == {NodeState.AVAILABLE}
    assert fleet.drained() == set()
    fleet.use_all()
    assert strict_json(fleet.fleet("incident", "n2", "--format", "json"))["incident"]["closed_s"]
    fleet.check()


def test_killed_ten_times_and_resumed_nothing_is_lost_or_done_twice(
    fleet_on_postgres: Fleet,
) -> None:
    fleet = fleet_on_postgres
    assert fleet.db is not None
    chance = random.Random(7)
    for name in ("n2", "n5"):
        (fleet.faults / name).touch()
    for number in range(10):
        process = fleet.campaign("install")
        time.sleep(chance.uniform(0.5, 4.0))
        if number % 3 == 1:
            names = fleet.cluster.run("squeue", "-h", "-t", "R", "-o", "%i").split()
            for job in names[:1]:
                fleet.cluster.run("scancel", "--signal=KILL", "--full", job)
        if number % 3 == 2:
            fleet.cluster.kill_controller()
        if number % 3 == 0:
            fleet.db.kill()
            time.sleep(0.5)
        process.kill()
        process.communicate()
        if number % 3 == 0:
            fleet.db.start()
        if number % 3 == 2:
            fleet.cluster.start_controller()
            fleet.cluster.wait_until("all")
    fleet.finish("install")
    expected = {
        n: NodeState.IN_REPAIR if n in ("n2", "n5") else NodeState.AVAILABLE
        for n in fleet.cluster.names
    }
    assert fleet.states() == expected
    fleet.check()
