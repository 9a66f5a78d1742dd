# SPDX-License-Identifier: Apache-2.0
"""What an incident tells, and which earlier ones are like it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleet.cluster import START_S, Cluster
from truestep.fleet.incident import Incident, incidents
from truestep.fleet.job import NODE
from truestep.fleet.policy import Occasion
from truestep.fleet.similar import similar
from truestep.store.history.ingest import ingest_folder


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    made = Cluster(tmp_path)
    yield made
    made.history.close()


def test_the_incident_tells_when_it_went_bad_and_which_jobs_to_distrust(cluster: Cluster) -> None:
    cluster.run(Occasion.INSTALL)
    passed_s = cluster.history.find("n2").last_pass_s
    cluster.use_all()
    marks = cluster.folder / "marks"
    marks.mkdir()
    (marks / NODE).write_text("n2\n")
    ends = [int(START_S) - 1000, int(cluster.now_s) + 1, int(cluster.now_s) + 2]
    (marks / "x.marks").write_text("".join(f"{end} {10 + i} 1000\n" for i, end in enumerate(ends)))
    ingest_folder(cluster.history, marks)
    cluster.faulty.add("n2")
    cluster.now_s += 100
    cluster.run(Occasion.RECLAIM)
    (incident,) = incidents_of(cluster, "n2")
    assert incident.sound_s == passed_s
    assert incident.bad_s is not None
    assert incident.bad_s > ends[-1]
    assert [(job.id, job.uid) for job in incident.jobs] == [("11", "1000"), ("12", "1000")]
    assert (incident.trigger, incident.suspects) == ("reclaim", ("device cuda:0",))
    assert [(s.num_failing, s.num_runs) for s in incident.symptoms] == [(2, 2)]
    assert incident.closed_s is None
    cluster.repair("n2")
    cluster.run(Occasion.REPAIR)
    (incident,) = incidents_of(cluster, "n2")
    assert incident.time_to_repair_s is not None
    assert [s.what for s in incident.steps if s.what.startswith("action")] == [
        "action drain",
        "action repair",
        "action release",
    ]
    assert incidents_of(cluster, "n3") == []


def test_the_most_similar_earlier_incident_is_named_with_what_both_have(cluster: Cluster) -> None:
    cluster.faulty |= {"n2", "n5"}
    cluster.run(Occasion.INSTALL)
    (one,), (two,) = incidents_of(cluster, "n2"), incidents_of(cluster, "n5")
    (likeness,) = similar(one, [one, two])
    assert likeness.incident == two
    assert likeness.share == 1.0
    assert {"test matmul", "device H200", "suspect device"} <= set(likeness.features)


def incidents_of(cluster: Cluster, name: str) -> list[Incident]:
    entry = cluster.history.find(name)
    return incidents(entry, cluster.history.records(entry.key), cluster.history.runs_of(entry.key))
