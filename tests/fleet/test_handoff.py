# SPDX-License-Identifier: Apache-2.0
"""What goes to the vendor: counts with intervals, the clean contrast, what the vendor found."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fleet.cluster import Cluster
from truestep.cli.main import cli
from truestep.errors import ConfigError
from truestep.fleet.handoff import case_of, hand_off
from truestep.fleet.policy import Occasion
from truestep.judging.power import interval
from truestep.store.durable import write_atomically
from truestep.verdict import Outcome


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    made = Cluster(tmp_path)
    made.run(Occasion.INSTALL)
    made.use_all()
    made.faulty.add("n2")
    made.run(Occasion.RECLAIM)
    file = {"schema_version": 1, "db": f"sqlite:///{tmp_path}/fleet.db"}
    (tmp_path / "fleet.json").write_text(json.dumps(file))
    yield made
    made.history.close()


def fleet(cluster: Cluster, command: str, *arguments: object) -> Result:
    given = ["fleet", command, "--fleet", str(cluster.folder), *map(str, arguments)]
    return CliRunner().invoke(cli, given)


def test_the_counts_have_intervals_and_the_others_are_the_contrast(cluster: Cluster) -> None:
    found, fails = hand_off(cluster.history, "G-n2")
    (count,) = found.tests
    assert (count.num_failing, count.num_runs) == (2, 3)
    assert (count.low, count.high) == interval(2, 3)
    assert (count.sound_elsewhere, count.failing_elsewhere) == (7, 0)
    assert [m.outcome for m in found.time_line] == [Outcome.PASS, Outcome.FAIL, Outcome.FAIL]
    assert found.evidence == tuple(r.id for r in fails)
    assert [p.name for p in found.placements] == ["n2"]
    by_node, _ = hand_off(cluster.history, "n2")
    assert by_node.tests == found.tests
    assert case_of(fails)["tests"] == ["matmul"]


def test_a_device_that_never_failed_is_not_handed_off(cluster: Cluster) -> None:
    for name in ("G-n3", "n3"):
        with pytest.raises(ConfigError, match="must rest on a fail"):
            hand_off(cluster.history, name)


def test_a_device_is_followed_through_its_nodes(cluster: Cluster) -> None:
    cluster.cards = {"n2": "new", "n5": "n2"}
    cluster.faulty = {"n5"}
    cluster.now_s += 2 * 3600
    cluster.use_all()
    cluster.run(Occasion.RECLAIM)
    found, _ = hand_off(cluster.history, "G-n2")
    assert {p.name for p in found.placements} == {"n2", "n5"}
    assert {m.node for m in found.time_line} == {"n2", "n5"}


def test_the_folder_is_whole_and_its_sums_hold(cluster: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "diag [x](y).json"
    log.write_bytes(b'{"status": "Fail", "gpu_id": 0}\xff')
    assert fleet(cluster, "attach", "--tool", "dcgmi", f"n2={log}").exit_code == 0
    out = tmp_path / "rma"
    made = fleet(cluster, "rma", "G-n2", "--out", out, "--attach", log)
    assert made.exit_code == 0, made.output
    sums = dict(reversed(s.split("  ")) for s in (out / "SHA256SUMS").read_text().splitlines())
    files = {str(f.relative_to(out)): f for f in out.rglob("*") if f.is_file()}
    assert set(files) == {*sums, "SHA256SUMS"}
    assert {"rma.json", "rma.md", "case.json", "reproducer.py", "records.jsonl"} < set(sums)
    for name, digest in sums.items():
        assert hashlib.sha256(files[name].read_bytes()).hexdigest() == digest
    page = (out / "rma.md").read_text()
    assert "failed in 2 of 3 runs" in page
    assert "dcgmi says faulty" in page
    assert len(json.loads((out / "rma.json").read_text())["attached"]) == 2
    assert len((out / "records.jsonl").read_text().splitlines()) == 2
    again = fleet(cluster, "rma", "G-n2", "--out", out)
    assert "must not exist yet" in str(again.exception) + again.output
    (cluster.folder / "attached" / hashlib.sha256(log.read_bytes()).hexdigest()).write_text("x")
    changed = fleet(cluster, "rma", "G-n2", "--out", tmp_path / "rma2")
    assert "it was" in str(changed.exception) + changed.output
    assert not (tmp_path / "rma2").exists()


def test_precision_is_of_what_vendors_found_each_device_once(cluster: Cluster) -> None:
    cluster.faulty = {"n5"}
    cluster.use_all()
    cluster.run(Occasion.RECLAIM)
    judged = [("G-n2", "no-fault-found"), ("G-n5", "software"), ("G-n2", "confirmed")]
    for serial, outcome in judged:
        kept = fleet(cluster, "rma", serial, "--outcome", outcome, "--note", "seen")
        assert kept.exit_code == 0, kept.output
    found = json.loads(fleet(cluster, "status", "--json").output)["handed_off"]
    low, high = interval(1, 2)
    assert found == {"num_confirmed": 1, "num_judged": 2, "low": low, "high": high}
    assert "confirmed 1 of 2 hand-offs" in fleet(cluster, "status").output
    never_failed = fleet(cluster, "rma", "G-n3", "--outcome", "confirmed")
    assert "must rest on a fail" in str(never_failed.exception)
    page = fleet(cluster, "incident", "n2").output
    assert r"G\-n2: confirmed: seen" in page


def test_a_full_disk_leaves_no_half_of_a_folder(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        if path.name == "case.json":
            raise OSError(28, "No space left on device")
        write_atomically(path, data)

    monkeypatch.setattr("truestep.cli.fleet.rma.write_atomically", full)
    out = tmp_path / "out" / "rma"
    assert isinstance(fleet(cluster, "rma", "G-n2", "--out", out).exception, OSError)
    assert list(out.parent.iterdir()) == []
    monkeypatch.undo()
    assert fleet(cluster, "rma", "G-n2", "--out", out).exit_code == 0
    link = out.with_name("link")
    link.symlink_to(out)
    assert "must not exist yet" in str(fleet(cluster, "rma", "G-n2", "--out", link).exception)
