# SPDX-License-Identifier: Apache-2.0
"""The Slurm adapter, on a real cluster whose controller is not root."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from slurm_cluster import USER, Cluster, running_cluster
from truestep.errors import ConfigError
from truestep.fleet.scheduler import Job, JobState
from truestep.fleet.slurm import SlurmScheduler, info_of

LINE = (
    "NodeName=n0 Arch=x86_64 CoresPerSocket=1 NodeAddr=10.0.0.1 NodeHostName=host Version=22.05 "
    "State={state} ThreadsPerCore=1 BootTime=2026-01-02T03:04:05 LastBusyTime={busy} Reason={why}"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster(num_nodes=3) as running:
        yield running


@pytest.fixture
def slurm(cluster: Cluster) -> SlurmScheduler:
    return SlurmScheduler(
        user=USER, environment=cluster.environment, prefix=("runuser", "-u", USER, "--")
    )


def wait_for(slurm: SlurmScheduler, name: str, state: JobState) -> None:
    deadline = time.monotonic() + 30
    while slurm.jobs([name]).get(name, ("", None))[1] is not state:
        assert time.monotonic() < deadline, slurm.jobs([name])
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("IDLE", "idle"),
        ("IDLE+RESERVED", "idle"),
        ("IDLE+DRAIN", "drained"),
        ("ALLOCATED+DRAIN", "drained busy"),
        ("IDLE+COMPLETING", "busy"),
        ("MIXED", "busy"),
        ("IDLE*", "down"),
        ("DOWN*+DRAIN", "drained down"),
        ("IDLE+POWERED_DOWN", "down"),
        ("IDLE+BLESSED", ""),
        ("", ""),
    ],
)
def test_the_words_of_a_state_are_read(state: str, expected: str) -> None:
    info = info_of(LINE.format(state=state, busy="Unknown", why="x"))
    found = {w for w in ("idle", "drained", "busy", "down") if getattr(info, f"is_{w}")}
    assert found == set(expected.split())
    assert info.last_busy_s is None


def test_a_reason_may_hold_anything() -> None:
    why = "bad State=IDLE fan = [x] y [root@2026-01-02T03:04:05]"
    info = info_of(LINE.format(state="IDLE+DRAIN", busy="2026-01-02T03:04:05", why=why))
    assert info.reason == "bad State=IDLE fan = [x] y"
    assert info.is_drained
    assert info.last_busy_s == info.booted_s


@pytest.mark.parametrize("name", ["", "-n", "n0,n1", "n[0-1]", "n0\n", "ALL x", "a" * 99])
def test_a_name_that_could_be_several_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="must be"):
        SlurmScheduler().drain(name, "truestep:x")


def test_marks_of_others_are_left_alone(cluster: Cluster, slurm: SlurmScheduler) -> None:
    """Case C30."""
    why = "reason=bad fan, see ticket 7"
    cluster.run("scontrol", "update", "nodename=n0", "state=drain", why, user="root")
    assert not slurm.drain("n0", "truestep:retest_failed")
    assert not slurm.resume("n0")
    assert slurm.nodes()["n0"].reason == "bad fan, see ticket 7"
    cluster.run("scontrol", "update", "nodename=n0", "state=resume", user="root")


def test_our_mark_is_set_and_cleared_however_often(slurm: SlurmScheduler) -> None:
    for _ in range(2):
        assert slurm.drain("n1", "truestep:retest_failed records=2")
    info = slurm.nodes()["n1"]
    assert (info.is_drained, info.is_marked_by_us, info.is_idle) == (True, True, False)
    for _ in range(2):
        assert slurm.resume("n1")
    assert not slurm.nodes()["n1"].is_drained
    with pytest.raises(ConfigError, match="Slurm knows"):
        slurm.drain("n77", "truestep:x")


def test_a_fence_lets_our_job_on_and_keeps_others_off(
    cluster: Cluster, slurm: SlurmScheduler
) -> None:
    now_s = time.time()
    for more_s in (600, 1200):
        assert slurm.fence("n2", until_s=now_s + more_s)
    theirs = cluster.run("sbatch", "--parsable", "-w", "n2", "-o", "/dev/null", "--wrap", "true")
    job = Job(
        name="truestep-0123",
        node="n2",
        script='#!/bin/sh\necho "$SLURMD_NODENAME"\n',
        limit_s=60,
        start_by_s=now_s + 300,
        log=str(cluster.folder / "out" / "log"),
    )
    assert slurm.submit(job).isdigit()
    wait_for(slurm, job.name, JobState.ENDED)
    assert (cluster.folder / "out" / "log").read_text() == "n2\n"
    assert cluster.run("squeue", "-h", "-j", theirs.strip(), "-o", "%T").strip() == "PENDING"
    for _ in range(2):
        slurm.unfence("n2")
        slurm.cancel(theirs.strip())
    assert slurm.jobs([]) == {}
    assert "truestep-none" not in slurm.jobs(["truestep-none"])


def test_a_busy_node_is_not_fenced(cluster: Cluster, slurm: SlurmScheduler) -> None:
    """Case C31: drained and allocated is busy."""
    cluster.run("sbatch", "-w", "n0", "-J", "theirs", "-o", "/dev/null", "--wrap", "sleep 60")
    wait_for(slurm, "theirs", JobState.RUNNING)
    assert not slurm.fence("n0", until_s=time.time() + 600)
    assert slurm.drain("n0", "truestep:x")
    info = slurm.nodes()["n0"]
    assert (info.is_busy, info.is_drained) == (True, True)
    slurm.cancel(slurm.jobs(["theirs"])["theirs"][0])
    assert slurm.resume("n0")


def test_a_start_of_the_controller_is_no_use_of_a_node(
    cluster: Cluster, slurm: SlurmScheduler
) -> None:
    begun_s = time.time()
    cluster.kill_controller()
    cluster.start_controller()
    cluster.wait_until("all")
    quiet = slurm.nodes()
    assert not [n for n, i in quiet.items() if (i.last_busy_s or 0.0) >= begun_s]
    ended_s = time.time()
    cluster.run("sbatch", "-w", "n[0-1]", "-N2", "-J", "used", "-o", "/dev/null", "--wrap", "true")
    wait_for(slurm, "used", JobState.ENDED)
    used = {n for n, i in slurm.nodes().items() if (i.last_busy_s or 0.0) >= ended_s - 1}
    assert used == {"n0", "n1"}
