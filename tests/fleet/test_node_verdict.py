# SPDX-License-Identifier: Apache-2.0
"""The verdict that a node's prolog reads, and the scripts that fetch and read it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from truestep.errors import ConfigError, RecordError
from truestep.fleet.node_verdict import (
    PRIVATE_KEY,
    PUBLIC_KEY,
    NodeVerdict,
    new_key,
    next_serial,
    publish,
    read,
)
from truestep.verdict import Outcome

HOOKS = Path(__file__).parents[2] / "deploy" / "slurm"
NOW_S = int(time.time())
FAIL = NodeVerdict(
    node="n0",
    outcome=Outcome.FAIL,
    reason="retest_failed",
    serial=1,
    issued_s=NOW_S,
    expires_s=NOW_S + 3600,
)
PASS = dataclasses.replace(FAIL, outcome=Outcome.PASS, reason="passed", serial=2)


@dataclass
class OneNode:
    """A node's files, and the controller's drop folder."""

    folder: Path

    def __post_init__(self) -> None:
        new_key(self.folder)
        self.drop, self.cache = self.folder / "drop", self.folder / "n0" / "verdict"
        self.marks = self.folder / "n0" / "marks"
        self.conf = self.folder / "node.conf"
        self.conf.write_text(
            f"# $(touch {self.folder}/evaluated)\ncache={self.folder}/%n/verdict\n"
            f"marks={self.folder}/%n/marks\ndrop={self.drop}\nkey={self.folder}/{PUBLIC_KEY}\n"
            "screening_uid=4242\n"
        )

    def publish(self, verdict: NodeVerdict) -> None:
        publish(self.drop, verdict, self.folder / PRIVATE_KEY)

    def hook(self, name: str, **env: str) -> subprocess.CompletedProcess[str]:
        given = {"SLURMD_NODENAME": "n0", "SLURM_JOB_ID": "7", "SLURM_JOB_UID": "1000", **env}
        return subprocess.run(
            [str(HOOKS / name)],
            env={"PATH": os.environ["PATH"], "TRUESTEP_NODE_CONF": str(self.conf), **given},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def check(self, **env: str) -> int:
        return self.hook("truestep-check.sh", **env).returncode

    def epilog(self, **env: str) -> None:
        assert self.hook("truestep-epilog.sh", **env).returncode == 0


@pytest.fixture
def node(tmp_path: Path) -> OneNode:
    return OneNode(tmp_path)


def test_a_verdict_is_what_was_signed(node: OneNode) -> None:
    node.publish(FAIL)
    path, key = node.drop / "n0.verdict", node.folder / PUBLIC_KEY
    assert read(path, key) == FAIL
    assert next_serial(node.drop, "n0") == 2
    assert next_serial(node.drop, "n1") == 1
    assert (node.folder / PRIVATE_KEY).stat().st_mode & 0o777 == 0o600
    path.write_bytes(path.read_bytes().replace(b"fail", b"pass"))
    with pytest.raises(RecordError, match="signed by the controller"):
        read(path, key)


@pytest.mark.parametrize("name", ["", "../n0", "n0 outcome=pass", "n0\n", "é"])
def test_a_name_that_could_be_read_otherwise_is_refused(node: OneNode, name: str) -> None:
    with pytest.raises(ConfigError, match="must be letters"):
        node.publish(dataclasses.replace(FAIL, node=name))


def test_a_fail_drains_its_node_and_a_later_pass_lets_jobs_on(node: OneNode) -> None:
    assert node.check() == 0
    node.publish(FAIL)
    assert node.check() == 0
    node.epilog()
    ended = node.hook("truestep-check.sh")
    assert ended.returncode == 1
    assert "retest_failed" in ended.stderr
    assert node.check(SLURM_JOB_UID="4242") == 0
    assert node.check(SLURMD_NODENAME="n1") == 0
    node.publish(PASS)
    node.epilog()
    assert node.check() == 0


def test_an_older_verdict_does_not_come_back(node: OneNode) -> None:
    node.publish(PASS)
    node.epilog()
    node.publish(FAIL)
    node.epilog()
    assert node.check() == 0
    assert "outcome=pass" in node.cache.read_text()


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("pass", "fail"),
        lambda text: text.replace("n0", "n1"),
        lambda text: text.replace("serial=1", "serial=9"),
        lambda text: text.splitlines()[0],
        lambda text: "",
        lambda text: "\x00" * 10_000,
        lambda text: text.replace("\n", ";exit 1\n", 1),
    ],
)
def test_what_the_controller_did_not_sign_never_reaches_the_cache(
    node: OneNode, change: object
) -> None:
    verdict = dataclasses.replace(PASS, serial=1)
    node.publish(verdict)
    path = node.drop / "n0.verdict"
    path.write_text(change(path.read_text()))  # type: ignore[operator]
    node.epilog()
    assert not node.cache.exists()
    assert list((node.folder / "n0").glob(".truestep*")) == []


def test_another_nodes_or_an_expired_verdict_is_not_installed(node: OneNode) -> None:
    node.publish(dataclasses.replace(FAIL, node="n1"))
    (node.drop / "n1.verdict").rename(node.drop / "n0.verdict")
    node.epilog()
    assert not node.cache.exists()
    node.publish(dataclasses.replace(FAIL, issued_s=1, expires_s=2))
    node.epilog()
    assert not node.cache.exists()


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.one_of(st.binary(max_size=700), st.integers(0, 120)))
def test_no_garbage_in_the_cache_drains_a_node(node: OneNode, garbage: bytes | int) -> None:
    if isinstance(garbage, int):
        garbage = FAIL.line[: min(garbage, len(FAIL.line) - 1)]
    node.cache.parent.mkdir(exist_ok=True)
    node.cache.write_bytes(garbage)
    assert node.check() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_a_cache_that_is_not_roots_or_is_a_link_is_not_believed(node: OneNode) -> None:
    node.publish(FAIL)
    node.epilog()
    os.chown(node.cache, 65534, 65534)
    assert node.check() == 0
    os.chown(node.cache, 0, 0)
    assert node.check() == 1
    node.cache.rename(node.cache.with_name("other"))
    node.cache.symlink_to("other")
    assert node.check() == 0


def test_each_job_leaves_one_mark_and_nothing_is_evaluated(node: OneNode) -> None:
    node.epilog()
    node.epilog(SLURM_JOB_ID="8")
    for wrong in ("", "$(id)", "1;2", "9" * 20):
        node.epilog(SLURM_JOB_ID=wrong)
    lines = [line.split() for line in node.marks.read_text().splitlines()]
    assert [line[1:] for line in lines] == [["7", "1000"], ["8", "1000"]]
    assert not (node.folder / "evaluated").exists()


def test_a_marks_file_that_is_a_link_is_left_alone(node: OneNode) -> None:
    node.marks.parent.mkdir()
    target = node.folder / "passwd"
    target.write_text("root\n")
    node.marks.symlink_to(target)
    node.epilog()
    assert target.read_text() == "root\n"


def test_marks_stay_small(node: OneNode) -> None:
    node.marks.parent.mkdir()
    node.marks.write_text(f"{NOW_S} 1 1000\n" * 300_000)
    node.epilog()
    assert node.marks.stat().st_size < 2**20
    assert node.marks.read_text().endswith(" 7 1000\n")


def test_without_any_configuration_nothing_happens(node: OneNode) -> None:
    node.conf.unlink()
    assert node.check() == 0
