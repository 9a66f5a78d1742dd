# SPDX-License-Identifier: Apache-2.0
"""A campaign on a cluster in memory, with a real history, killed at any call and resumed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.cluster import NAMES, START_S, Cluster, S
from fleet.fake_scheduler import DiedError
from truestep.action import ActionKind
from truestep.fleet.policy import Occasion, Rules
from truestep.fleet.scheduler import JobState
from truestep.store.history import RunStatus


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    made = Cluster(tmp_path)
    yield made
    made.history.close()


def test_a_node_that_went_bad_in_use_is_taken_out_repaired_and_returned(cluster: Cluster) -> None:
    cluster.run(Occasion.INSTALL)
    assert set(cluster.states().values()) == {S.AVAILABLE}
    cluster.use_all()
    cluster.faulty |= {"n2", "n5"}
    cluster.run(Occasion.RECLAIM)
    bad = {n for n, s in cluster.states().items() if s is not S.AVAILABLE}
    assert bad == {"n2", "n5"}
    assert {cluster.states()[n] for n in bad} == {S.IN_REPAIR}
    assert {n for n, info in cluster.scheduler.infos.items() if info.is_drained} == bad
    assert cluster.scheduler.fences == {}
    for name in bad:
        cluster.repair(name)
    cluster.run(Occasion.REPAIR)
    assert set(cluster.states().values()) == {S.AVAILABLE}
    assert all(info.is_idle for info in cluster.scheduler.infos.values())
    assert cluster.scheduler.fences == {}
    kinds = Counter(document["action"]["kind"] for document in cluster.told)
    assert kinds == {"drain": 2, "repair": 2, "release": 2}
    cluster.check()


def test_no_more_nodes_are_out_than_the_bound_allows(cluster: Cluster) -> None:
    cluster.rules = Rules(share_out=0.125)
    cluster.faulty |= {"n2", "n5"}
    cluster.run(Occasion.INSTALL)
    out = [n for n, s in cluster.states().items() if s in (S.IN_REPAIR, S.QUARANTINED, S.DRAINING)]
    assert len(out) == 1
    assert cluster.states()[({"n2", "n5"} - set(out)).pop()] is S.SUSPECT
    assert ActionKind.HOLD.value in {d["action"]["kind"] for d in cluster.told}


def test_a_dry_run_touches_nothing(cluster: Cluster) -> None:
    looked = cluster.controller(Occasion.INSTALL).look(now_s=cluster.now_s)
    assert len(looked.plan.screenings) == 8
    assert {what for what, _ in cluster.scheduler.log} == {"nodes"}
    assert cluster.history.open_runs() == ()


def test_a_cap_and_a_budget_are_kept(cluster: Cluster) -> None:
    plan = cluster.controller(Occasion.INSTALL, cap=3).look(now_s=START_S).plan
    assert len(plan.screenings) == 3
    plan = cluster.controller(Occasion.INSTALL, budget_s=150.0, limit_s=60.0).look(now_s=START_S)
    assert len(plan.plan.screenings) == 2


def test_what_somebody_else_drained_is_left_alone(cluster: Cluster) -> None:
    """Case C30."""
    theirs = replace(
        cluster.scheduler.infos["n1"], is_drained=True, is_idle=False, reason="bad fan [root]"
    )
    cluster.scheduler.infos["n1"] = theirs
    cluster.run(Occasion.INSTALL)
    assert cluster.scheduler.infos["n1"] == theirs
    assert cluster.states()["n1"] is S.NEW
    assert ("submit", "n1") not in cluster.scheduler.log


def mortal(cluster: Cluster, *, is_after: bool) -> Callable[[int | None], None]:
    """Let the controller die before a transaction is kept, or just after."""
    database, left = cluster.history._database, [None]
    write = database.write

    @contextmanager
    def dying() -> Iterator[Any]:
        dies = left[0] == 0
        if left[0] is not None:
            left[0] -= 1
        with write() as connection:
            yield connection
            if dies and not is_after:
                raise DiedError
        if dies:
            raise DiedError

    database.write = dying

    def die_in(call: int | None) -> None:
        left[0] = call

    return die_in


def test_another_machine_under_a_name_is_screened_as_new(cluster: Cluster) -> None:
    """Case C31."""
    cluster.run(Occasion.INSTALL)
    old = cluster.history.find("n3").key
    cluster.use_all()
    cluster.boards["n3"] = "ANOTHER"
    cluster.run(Occasion.RECLAIM)
    new = cluster.history.find("n3")
    assert (new.key != old, new.identity, new.state) == (True, "B-ANOTHER", S.NEW)
    assert cluster.history.entry(old).state is S.RECLAIMED
    cluster.run(Occasion.INSTALL)
    assert cluster.states()["n3"] is S.AVAILABLE
    cluster.check()


def test_a_machine_that_was_exchanged_is_not_drained_for_the_old_ones_faults(
    cluster: Cluster,
) -> None:
    """Case C31: behind the name stands another machine than the one that failed."""
    cluster.faulty.add("n2")
    cluster.run(Occasion.INSTALL, passes=2)
    info = cluster.scheduler.infos["n2"]
    cluster.scheduler.infos["n2"] = replace(info, machine="elsewhere")
    cluster.run(Occasion.INSTALL)
    assert ("drain", "n2") not in cluster.scheduler.log


def test_a_job_that_leaves_no_result_is_asked_about_in_the_end(cluster: Cluster) -> None:
    cluster.silent.add("n4")
    done = cluster.run(Occasion.INSTALL, passes=40)
    assert cluster.states()["n4"] is S.SUSPECT
    assert [(c.entry.name, a.kind) for c, a in done.plan.actions] == [("n4", ActionKind.HOLD)]
    assert len(cluster.history.runs_of(cluster.history.find("n4").key)) == 4
    cluster.check()


def test_a_job_that_never_starts_leads_back_to_where_the_node_was(cluster: Cluster) -> None:
    controller = cluster.controller(Occasion.INSTALL, start_within_s=100.0)
    controller.one_pass(now_s=cluster.now_s)
    assert set(cluster.states().values()) == {S.SCREENING}
    controller.one_pass(now_s=cluster.now_s + 101)
    assert {r.status for r in cluster.history.runs_in("c-install")} >= {RunStatus.EXPIRED}
    assert JobState.PENDING not in {
        cluster.scheduler.states[f"truestep-{r.id}"]
        for r in cluster.history.runs_in("c-install")
        if r.status is RunStatus.EXPIRED
    }


@pytest.mark.parametrize("where", ["scheduler", "before_commit", "after_commit"])
@pytest.mark.parametrize("first", range(1, 60, 4))
def test_killed_at_any_call_and_resumed_nothing_is_lost_or_done_twice(
    cluster: Cluster, first: int, where: str
) -> None:
    cluster.faulty |= {"n2", "n5"}
    die_in = mortal(cluster, is_after=where == "after_commit")
    lives = 0
    for call in (first, first // 3, first // 2, None):
        if where == "scheduler":
            cluster.scheduler.dies_in = call
        else:
            die_in(call)
        try:
            cluster.run(Occasion.INSTALL)
        except DiedError:
            lives += 1
            cluster.run_jobs()
    assert lives >= 1
    expected = {n: S.IN_REPAIR if n in cluster.faulty else S.AVAILABLE for n in NAMES}
    assert cluster.states() == expected
    assert cluster.scheduler.fences == {}
    cluster.check()
