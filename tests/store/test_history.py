# SPDX-License-Identifier: Apache-2.0
"""The history of a fleet, on SQLite and on a real PostgreSQL alike."""

from __future__ import annotations

import dataclasses
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postgres import Postgres, running_postgres
from truestep.action import Action, ActionKind
from truestep.device import Device, Node
from truestep.environment import Environment
from truestep.errors import ConfigError, RecordError
from truestep.reason import Reason
from truestep.record import Record, RecordKind
from truestep.store.history import History, NameMap, Run, RunStatus
from truestep.store.history.database import Database
from truestep.store.history.ingest import ingest_folder
from truestep.store.history.tables import TABLES, VERSION
from truestep.store.journal import Journal
from truestep.store.schema import dumps
from truestep.transition import NodeState, Transition
from truestep.verdict import Outcome, Status, Verdict

NOW_S = time.time() - 1e5
S = NodeState


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/fleet.db"
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture
def history(url: str) -> Iterator[History]:
    with History.create(url, is_simulation=False) as made:
        yield made


def a_record(number: int = 0, **changes: object) -> Record:
    outcome = changes.pop("outcome", Outcome.PASS)
    serial = changes.pop("serial", "GPU-1")
    name, board = changes.pop("node", ("n0", "B0"))  # type: ignore[misc]
    reason = Reason.PASSED if outcome is Outcome.PASS else Reason.MISCOMPARE_REPEATED
    values = {
        "id": f"record-{number:04}",
        "kind": RecordKind.SCREENING,
        "run_id": "run-0",
        "time_s": NOW_S + number,
        "subject": "matmul",
        "node": Node(name=name, board_serial=board),
        "device": Device(id="cuda:0", kind="cuda", model="H200", serial=serial),
        "environment": Environment(entries={"driver": "1"}),
        "verdict": Verdict(
            outcome=outcome,
            status=Status.COMPLETE,
            reason=reason,
            num_comparisons=1,
            selftest_caught=True,
        ),
    }
    return Record(**{**values, **changes})  # type: ignore[arg-type]


def a_run(key: int, name: str, run_id: str = "run-0") -> Run:
    return Run(
        id=run_id,
        key=key,
        name=name,
        campaign="c",
        occasion="reclaim",
        level=3,
        issued_s=NOW_S,
        start_by_s=NOW_S + 60,
        limit_s=60.0,
        status=RunStatus.ISSUED,
    )


def a_step(before: NodeState, after: NodeState, number: int) -> Record:
    return Record(
        id=f"step-{number}",
        kind=RecordKind.TRANSITION,
        run_id="",
        time_s=NOW_S + number,
        subject=after.value,
        transition=Transition(before=before, after=after, reason=Reason.SCREENING_DUE),
    )


def test_an_issued_run_binds_the_serial_and_counts_once(history: History) -> None:
    key = history.enrol("n0", now_s=NOW_S).key
    history.issue(a_run(key, "n0"))
    records = [a_record(i) for i in range(5)]
    first = history.fold(records[::-1], source="x")
    again = history.fold(records, source="y")
    assert (first.num_new, again.num_new, again.num_known) == (5, 0, 5)
    assert history.entry(key).identity == "B0"
    assert history.records(key) == tuple(records[::-1])
    assert history.close_run("run-0", RunStatus.FOLDED)
    assert not history.close_run("run-0", RunStatus.LOST)
    assert history.entry(key).last_pass_s == NOW_S + 4


def test_a_run_with_one_fail_is_no_pass(history: History) -> None:
    key = history.enrol("n0", now_s=NOW_S).key
    history.issue(a_run(key, "n0"))
    history.fold([a_record(0), a_record(1, outcome=Outcome.FAIL)], source="x")
    history.close_run("run-0", RunStatus.FOLDED)
    entry = history.entry(key)
    assert (entry.last_pass_s, entry.num_open, entry.last_screened_s) == (None, 1, NOW_S + 1)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"node": ("n1", "B1")}, "was issued for 'n0'"),
        ({"run_id": "x", "node": ("n7", "B7")}, "must be known"),
        ({"is_simulated": True}, "no real fleet"),
        ({"time_s": float("nan")}, "must not lie ahead"),
        ({"time_s": -1e308}, "nor before 1970"),
        ({"time_s": time.time() + 1e6}, "must not lie ahead"),
        ({"subject": "a\x00b"}, "printable"),
        ({"subject": "\ud800"}, "printable"),
        ({"id": "y" * 1000}, "printable"),
        ({"kind": RecordKind.WITHDRAWAL, "withdraws": "z", "run_id": "x"}, "controller issued"),
        ({"device": Device(id="\x00", kind="cuda", model="m")}, "printable"),
    ],
)
def test_what_may_not_come_in_is_kept_aside_once(
    history: History, change: dict[str, object], why: str
) -> None:
    history.issue(a_run(history.enrol("n0", now_s=NOW_S).key, "n0"))
    record = a_record(0, **change)
    for _ in range(2):
        (refused,) = history.fold([record], source="x").refused
        assert why in refused.why
    assert len(history.refused()) == 1
    assert history.records(1) == ()


def test_hostile_bytes_elsewhere_are_kept_as_they_are(history: History) -> None:
    key = history.enrol("n0", now_s=NOW_S).key
    device = Device(id="cuda:0", kind="cuda", model="m\x00\udc80", serial="s", firmware="\x00")
    record = dataclasses.replace(a_record(), device=device, replay="\x00\ud800" * 1000)
    assert history.fold([record], source="\x00\ud800").num_new == 1
    assert dumps(history.records(key)[0]) == dumps(record)


def test_outsiders_write_no_transitions_and_no_actions(history: History) -> None:
    key = history.enrol("n0", now_s=NOW_S).key
    assert history.fold([a_step(S.NEW, S.SCREENING, 1)], source="x").refused
    assert history.entry(key).state is S.NEW


def test_a_closed_run_takes_nothing_more(history: History) -> None:
    history.issue(a_run(history.enrol("n0", now_s=NOW_S).key, "n0"))
    history.fold([a_record(0)], source="x")
    history.close_run("run-0", RunStatus.FOLDED)
    folded = history.fold([a_record(0), a_record(1)], source="late")
    assert (folded.num_known, len(folded.refused)) == (1, 1)


def test_an_id_has_one_content(history: History) -> None:
    key = history.enrol("n0", now_s=NOW_S).key
    history.fold([a_record(0)], source="x")
    folded = history.fold([a_record(0, outcome=Outcome.FAIL)], source="forged")
    assert "one content" in folded.refused[0].why
    assert history.records(key) == (a_record(0),)


def test_a_run_that_nobody_issued_counts_as_not_issued(history: History) -> None:
    key = history.enrol("n0", now_s=NOW_S).key
    history.fold([a_record(0)], source="by hand")
    ((_, records, issued),) = history.recent()
    assert (len(records), issued) == (1, frozenset())
    assert history.entry(key).identity == ""


def test_another_machine_under_the_name_is_another_node(history: History) -> None:
    """Case C31."""
    old = history.enrol("n0", now_s=NOW_S).key
    history.issue(a_run(old, "n0"))
    history.fold([a_record(0, outcome=Outcome.FAIL)], source="x")
    history.close_run("run-0", RunStatus.FOLDED)
    history.issue(a_run(old, "n0", "run-1"))
    folded = history.fold([a_record(1, run_id="run-1", node=("n0", "B9"), serial="")], source="x")
    ((before, after),) = folded.replaced
    assert before == old
    assert history.find("n0").key == after
    assert history.entry(old).name == f"n0@{old}"
    assert [r.id for r in history.records(old)] == ["record-0000"]
    assert [r.key for r in history.open_runs()] == [after]


def test_one_serial_under_two_names_is_an_error_that_names_both(history: History) -> None:
    for name in ("n0", "n1"):
        history.issue(a_run(history.enrol(name, now_s=NOW_S).key, name, f"run-{name}"))
    history.fold([a_record(0, run_id="run-n0")], source="x")
    folded = history.fold([a_record(1, run_id="run-n1", node=("n1", "B0"))], source="x")
    assert "'n0'" in folded.refused[0].why
    assert "'n1'" in folded.refused[0].why


def test_a_device_is_followed_from_node_to_node(history: History) -> None:
    keys = [history.enrol(name, now_s=NOW_S).key for name in ("n0", "n1")]
    there = a_record(1, node=("n1", ""), time_s=NOW_S + 90_000)
    soon = a_record(2, node=("n1", ""), time_s=NOW_S + 60)
    folded = history.fold([a_record(0, node=("n0", "")), soon, there], source="x")
    assert "one node at a time" in folded.refused[0].why
    assert [p.key for p in history.placements("GPU-1")] == keys
    assert len(history.records_of_device("GPU-1")) == 2


def test_evidence_under_several_names_is_one_node(history: History, tmp_path: Path) -> None:
    """Case C33."""
    (tmp_path / "map.toml").write_text(
        '[nodes.n0]\nserial = "B0"\naliases = ["n0.cluster", "pod-7"]\nrack = "r1"\n'
        '[nodes."a1.x"]\n[nodes."a1.y"]\n'
    )
    history.map_nodes(NameMap.read(tmp_path / "map.toml"), now_s=NOW_S)
    names = ["pod-7", "n0", "n0.cluster"]
    folded = history.fold(
        [a_record(i, node=(name, "")) for i, name in enumerate(names)], source="x"
    )
    assert folded.keys == {history.find("n0").key}
    assert {history.find(name).key for name in [*names, "B0"]} == folded.keys
    assert history.find("pod-7").rack == "r1"
    with pytest.raises(ConfigError, match=r"'a1\.x', 'a1\.y'"):
        history.find("a1")


@pytest.mark.parametrize(
    "text",
    [
        '[nodes.a]\nserial="s"\n[nodes.b]\nserial="s"',
        '[nodes.a]\naliases=["b"]\n[nodes.b]',
        '[nodes.a]\naliases="b"',
        '[nodes.a]\nserail="s"',
        "nodes = 3",
        "\x00",
    ],
)
def test_a_map_that_says_two_things_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text(text)
    with pytest.raises(ConfigError, match="must"):
        NameMap.read(tmp_path / "map.toml")


def test_in_a_simulation_the_map_gives_each_name_its_serial(url: str, tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text('[nodes.n0]\nserial="S0"\n[nodes.n1]\nserial="S1"\n')
    with History.create(url, is_simulation=True) as history:
        history.map_nodes(NameMap.read(tmp_path / "map.toml"), now_s=NOW_S)
        for i, name in enumerate(("n0", "n1")):
            history.fold([a_record(i, node=(name, "ONE BOARD"), is_simulated=True)], source="x")
        assert [e.identity for e in history.entries()] == ["S0", "S1"]
        assert history.placements("S1/GPU-1")[0].name == "n1"


def test_a_transition_begins_where_the_node_is(history: History) -> None:
    key = history.enrol("n0", now_s=NOW_S).key
    history.append(key, a_step(S.NEW, S.SCREENING, 1))
    with pytest.raises(RecordError, match="must begin where"):
        history.append(key, a_step(S.SCREENING, S.AVAILABLE, 2), a_step(S.NEW, S.SCREENING, 3))
    assert history.entry(key).state is S.SCREENING
    assert len(history.records(key)) == 1


def test_recent_holds_what_later_decisions_look_back_at(history: History) -> None:
    key = history.enrol("n0", now_s=NOW_S).key
    path = [S.NEW, S.SCREENING, S.SUSPECT, S.SCREENING, S.AVAILABLE, S.IN_USE]
    for number, (before, after) in enumerate(itertools.pairwise(path)):
        history.append(key, a_step(before, after, number))
    ((entry, records, _),) = history.recent({key})
    assert entry.state is S.IN_USE
    assert [r.subject for r in records] == ["suspect", "available", "in_use"]
    assert list(history.recent(set())) == []


def test_an_action_is_done_once_and_found_again(history: History) -> None:
    key = history.enrol("n0", now_s=NOW_S).key
    action = Action(kind=ActionKind.DRAIN, node="n0", reason="retest_failed", records=("a", "b"))
    assert history.begin(key, action, now_s=NOW_S)
    assert history.begin(key, action, now_s=NOW_S)
    assert history.begun() == ((key, action),)
    history.finish(key, action)
    assert not history.begin(key, action, now_s=NOW_S)
    assert history.begun() == ()
    history.append(key, a_step(S.NEW, S.SCREENING, 1))
    assert history.begin(key, action, now_s=NOW_S)


def test_a_node_has_one_open_run(history: History) -> None:
    key = history.enrol("n0", now_s=NOW_S).key
    history.issue(a_run(key, "n0"))
    with pytest.raises(RecordError, match="one open run"):
        history.issue(a_run(key, "n0", "run-1"), a_step(S.NEW, S.SCREENING, 1))
    assert history.entry(key).state is S.NEW
    history.submitted("run-0", "77")
    assert [(r.job_id, r.status) for r in history.open_runs()] == [("77", RunStatus.SUBMITTED)]


def test_nodes_alike_are_tallied_by_their_latest_outcome(history: History) -> None:
    for name, outcomes in (("n0", ["fail", "pass"]), ("n1", ["fail"])):
        key = history.enrol(name, now_s=NOW_S).key
        history.issue(a_run(key, name, f"run-{name}"))
        for i, outcome in enumerate(outcomes):
            number = 10 * key + i
            made = a_record(
                number, outcome=Outcome(outcome), node=(name, ""), run_id=f"run-{name}", serial=""
            )
            history.fold([made], source="x")
    record = a_record(0)
    assert record.environment is not None
    found = history.tally(
        subject="matmul", model="H200", environment=record.environment.key, since_s=0.0
    )
    assert found == {Outcome.PASS: {1}, Outcome.FAIL: {2}}


def test_a_record_is_found_by_a_beginning_that_is_no_other(history: History) -> None:
    key = history.enrol("n0", now_s=NOW_S).key
    history.fold([a_record(1), a_record(2)], source="x")
    assert history.record("record-0001") == (key, a_record(1))
    for text in ("record", "rec", "nothing", "\x00"):
        with pytest.raises(ConfigError, match="must be named"):
            history.record(text)


def test_there_is_one_controller(url: str) -> None:
    with History.create(url, is_simulation=False) as one, History.open(url) as two:
        with one.controller(), pytest.raises(RecordError, match="one controller"), two.controller():
            pass
        with two.controller():
            pass


def test_a_history_is_made_once_and_of_this_version(url: str) -> None:
    with pytest.raises(RecordError, match="fleet init"):
        History.open(url)
    History.create(url, is_simulation=True).close()
    with pytest.raises(RecordError, match="no history yet"):
        History.create(url, is_simulation=True)
    History.upgrade(url)
    with closing(Database(url)) as database:
        assert database.version() == VERSION
    with History.open(url) as history:
        assert history.is_simulation


def test_the_migrations_make_the_tables_that_are_used(url: str) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    History.create(url, is_simulation=False).close()
    with closing(Database(url)) as database, database.read() as connection:
        assert compare_metadata(MigrationContext.configure(connection), TABLES) == []


@pytest.mark.parametrize("text", ["mysql://u:secret@h/d", "sqlite://", "://secret", "fleet.db"])
def test_another_database_is_refused_without_telling_the_password(text: str) -> None:
    with pytest.raises(ConfigError, match="must be sqlite") as caught:
        History.open(text)
    assert "secret" not in str(caught.value)


def test_a_server_that_is_away_is_said_without_the_password() -> None:
    with pytest.raises(RecordError, match="must be usable") as caught:
        History.open("postgresql://u:secret@127.0.0.1:1/d")
    assert "secret" not in str(caught.value)


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    path.write_text("something else" * 100)
    for use in (History.open, lambda url: History.create(url, is_simulation=False)):
        with pytest.raises(RecordError, match="must be usable"):
            use(f"sqlite:///{path}")
    assert path.read_text() == "something else" * 100


Op = tuple[str, int]


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["pass", "fail", "unknown", "step"]), st.integers(0, 2)),
        max_size=25,
    ),
    order=st.randoms(use_true_random=False),
)
def test_what_follows_from_records_is_what_a_rebuild_makes(
    steps: list[Op], order: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cycle = [S.NEW, S.SCREENING, S.AVAILABLE, S.IN_USE, S.RECLAIMED]
    folder = tmp_path_factory.mktemp("property")
    with History.create(f"sqlite:///{folder}/fleet.db", is_simulation=False) as history:
        keys = [history.enrol(f"n{i}", now_s=NOW_S).key for i in range(3)]
        for key in keys:
            history.issue(a_run(key, f"n{key - 1}", f"run-{key}"))
        at = dict.fromkeys(keys, 0)
        for number, (what, node) in enumerate(steps):
            key = keys[node]
            if what == "step":
                before, after = cycle[at[key]], cycle[(at[key] % 4) + 1]
                history.append(key, a_step(before, after, number))
                at[key] = at[key] % 4 + 1
            else:
                made = a_record(
                    number,
                    outcome=Outcome(what),
                    node=(f"n{node}", f"B{node}"),
                    serial=f"G{node}",
                    run_id=f"run-{key}",
                )
                history.fold([made, made], source="x")
        for key in keys:
            history.close_run(f"run-{key}", RunStatus.FOLDED)
        derived = (history.entries(), [history.devices_of(k) for k in keys])
        history.rebuild()
        assert (history.entries(), [history.devices_of(k) for k in keys]) == derived


def _results(folder: Path) -> list[Record]:
    records = [a_record(i, node=("n0", "")) for i in range(3)]
    journal = Journal(folder / "a" / "journal.jsonl")
    for record in records[:2]:
        journal.append(record)
    with journal.path.open("ab") as file:
        file.write(b"\ngarbage \xff\x00\n")
    document = f'{{"records": [{dumps(records[2])}, {{"id": 3}}, null]}}'
    (folder / "result-x.json").write_text(document)
    (folder / "result-y.json").write_text("[" * 100_000)
    (folder / "b").mkdir()
    (folder / "b" / "node").write_text("n0\n")
    (folder / "b" / "node.marks").write_text("1764000000 17 1000\nrm -rf /\n")
    (folder / "b" / "journal.jsonl").symlink_to("/dev/zero")
    return records


def test_a_folder_is_folded_in_once_and_its_garbage_kept_aside(
    history: History, tmp_path: Path
) -> None:
    key = history.enrol("n0", now_s=NOW_S).key
    records = _results(tmp_path / "results")
    first = ingest_folder(history, tmp_path / "results")
    again = ingest_folder(history, tmp_path / "results")
    assert (first.folded.num_new, again.folded.num_new, again.folded.num_known) == (4, 0, 4)
    assert len(first.problems) == 6
    found = {r.id: r for r in history.records(key)}
    assert all(found[r.id] == r for r in records)
    (job,) = history.records(key, kinds={RecordKind.WATCH})
    assert job.subject == "job/17"
    assert job.context is not None
    assert job.context.after is not None
    assert job.context.after.readings["uid"] == 1000
    assert len(history.refused()) == 6


FOLD = """
import sys
from pathlib import Path
from truestep.store.history import History
from truestep.store.history.ingest import ingest_folder
with History.open(sys.argv[1]) as history:
    print(ingest_folder(history, Path(sys.argv[2])).folded.num_new)
"""


def test_two_at_once_fold_each_record_once(url: str, tmp_path: Path) -> None:
    with History.create(url, is_simulation=False) as history:
        key = history.enrol("n0", now_s=NOW_S).key
        documents = ",".join(dumps(a_record(i, node=("n0", ""))) for i in range(1200))
        (tmp_path / "result-x.json").write_text(f'{{"records": [{documents}]}}')
        start: Callable[[], subprocess.Popen[bytes]] = lambda: subprocess.Popen(  # noqa: E731
            [sys.executable, "-c", FOLD, url, str(tmp_path)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": "src"},
        )
        both = [start(), start()]
        counts = [int(process.communicate(timeout=120)[0]) for process in both]
        assert sum(counts) == 1200
        assert len({r.id for r in history.records(key)}) == 1200


def test_a_killed_fold_leaves_whole_batches_and_is_finished_by_the_next(
    url: str, tmp_path: Path
) -> None:
    with History.create(url, is_simulation=False) as history:
        key = history.enrol("n0", now_s=NOW_S).key
        documents = ",".join(dumps(a_record(i, node=("n0", ""))) for i in range(3000))
        (tmp_path / "result-x.json").write_text(f'{{"records": [{documents}]}}')
        process = subprocess.Popen(
            [sys.executable, "-c", FOLD, url, str(tmp_path)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": "src"},
        )
        deadline = time.monotonic() + 60
        while not history.records(key) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.kill()
        process.communicate()
        assert len(history.records(key)) % 500 == 0
        ingest_folder(history, tmp_path)
        assert len(history.records(key)) == 3000


def test_a_killed_server_loses_nothing_that_was_said_to_be_kept() -> None:
    with running_postgres() as server:
        url = server.new_database()
        with History.create(url, is_simulation=False) as history:
            key = history.enrol("n0", now_s=NOW_S).key
            history.fold([a_record(0)], source="x")
            server.kill()
            with pytest.raises(RecordError, match="must be usable"):
                history.fold([a_record(1)], source="x")
        server.start()
        with History.open(url) as history:
            assert [r.id for r in history.records(key)] == ["record-0000"]
