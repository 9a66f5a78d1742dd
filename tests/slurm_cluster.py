# SPDX-License-Identifier: Apache-2.0
"""A real Slurm cluster of virtual nodes on this machine; its controller is not root."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from open_folder import open_folder

USER = "slurm"
HOOKS = Path(__file__).parents[1] / "deploy" / "slurm"
PROGRAMS = ("munged", "slurmctld", "slurmd", "scontrol", "sbatch")


@dataclass(slots=True)
class Cluster:
    """A cluster that runs."""

    folder: Path
    names: tuple[str, ...]

    @property
    def node_conf(self) -> Path:
        """What the prolog and the epilog of all nodes read."""
        return self.folder / "node.conf"

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(self, *command: str, user: str = USER, limit_s: float = 60) -> str:
        """What a command says that a user gives."""
        as_user = ["runuser", "-u", user, "--", *command] if user != "root" else list(command)
        return subprocess.run(
            as_user,
            check=True,
            capture_output=True,
            text=True,
            timeout=limit_s,
            env={**os.environ, **self.environment},
            cwd="/",
        ).stdout

    def start_controller(self) -> None:
        self.run("slurmctld", "-f", str(self.folder / "slurm.conf"), user="root")

    def kill_controller(self) -> None:
        _signal(self.folder / "run" / "slurmctld.pid", signal.SIGKILL)

    def wait_until(self, state: str, *, limit_s: float = 30.0) -> None:
        """Wait until all nodes are in a state."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            with suppress(subprocess.CalledProcessError):
                said = self.run("sinfo", "-h", "-N", "-t", state, "-o", "%N")
                if len(said.split()) == len(self.names):
                    return
            time.sleep(0.1)
        raise TimeoutError((self.folder / "log" / "slurmctld.log").read_text()[-2000:])


@contextmanager
def running_cluster(num_nodes: int = 8) -> Iterator[Cluster]:
    """A cluster that is stopped at the end; skipped where Slurm or root rights are missing."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        if os.environ.get("TRUESTEP_REQUIRE_SERVICES"):
            pytest.fail(f"Slurm must be installed and the tests run as root, missing: {missing}")
        pytest.skip("needs Slurm and root")
    with open_folder("slurm") as folder:
        cluster = Cluster(folder, tuple(f"n{i}" for i in range(num_nodes)))
        _make_folders(cluster)
        try:
            _start(cluster)
            yield cluster
        finally:
            _stop(cluster)


def _make_folders(cluster: Cluster) -> None:
    folder = cluster.folder
    for name in ("state", "spool", "log", "run", "out"):
        (folder / name).mkdir(parents=True)
        shutil.chown(folder / name, USER, USER)
    (folder / "munge.key").write_bytes(secrets.token_bytes(1024))
    (folder / "munge.key").chmod(0o600)
    (folder / "slurm.conf").write_text(_configuration(cluster))
    for name in ("check", "epilog"):
        hook, script = folder / name, HOOKS / f"truestep-{name}.sh"
        line = f"TRUESTEP_NODE_CONF={cluster.node_conf} exec bash {script}"
        hook.write_text(f"#!/bin/bash\n{line}\n")
        hook.chmod(0o755)
    cluster.node_conf.write_text(
        f"marks={folder}/nodes/%n/marks\ncache={folder}/nodes/%n/verdict\nscreening_uid=0\n"
    )


def _free_ports(count: int) -> int:
    """The first of a row of ports that nobody listens on."""
    while True:
        first = 20_000 + secrets.randbelow(10_000)
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first


def _configuration(cluster: Cluster) -> str:
    folder, last = cluster.folder, len(cluster.names) - 1
    host, port = socket.gethostname().split(".")[0], _free_ports(len(cluster.names) + 1)
    return f"""ClusterName=truestep
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={USER}
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.sock
CredType=cred/munge
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=0
ReturnToService=2
Prolog={folder}/check
Epilog={folder}/epilog
SlurmdTimeout=30
KillWait=5
AccountingStorageType=accounting_storage/none
NodeName=n[0-{last}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{port + 1}-{port + 1 + last}] \
CPUs=16 RealMemory=2000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def _start(cluster: Cluster) -> None:
    folder = cluster.folder
    cluster.run(
        "munged",
        "--force",
        f"--key-file={folder}/munge.key",
        f"--socket={folder}/run/munge.sock",
        f"--pid-file={folder}/run/munged.pid",
        f"--log-file={folder}/log/munged.log",
        f"--seed-file={folder}/run/munged.seed",
        user="root",
    )
    cluster.start_controller()
    for name in cluster.names:
        cluster.run("slurmd", "-N", name, "-f", str(folder / "slurm.conf"), user="root")
    cluster.wait_until("idle")


def _stop(cluster: Cluster) -> None:
    """In this order: a munged that goes first leaves processes of the others stuck."""
    with suppress(subprocess.SubprocessError):
        cluster.run("scancel", "--user", USER, limit_s=5)
    run = cluster.folder / "run"
    for pid in (*run.glob("slurmd.*.pid"), run / "slurmctld.pid"):
        _signal(pid, signal.SIGTERM)
    time.sleep(1.0)
    _signal(run / "munged.pid", signal.SIGTERM)


def _signal(file: Path, number: int) -> None:
    with suppress(OSError, ValueError):
        os.kill(int(file.read_text()), number)
