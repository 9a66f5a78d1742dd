# SPDX-License-Identifier: Apache-2.0
"""A history that is damaged, lost or oddly named says so, and never anything else."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import make_url

from truestep.errors import ConfigError, RecordError
from truestep.store.history import History, NameMap
from truestep.store.history.database import settled, url_of_file
from truestep.store.history.ingest import ingest_folder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "history.db"
    with History.create(url_of_file(file), is_simulation=True) as history:
        history.enrol("n1", now_s=1.0)
    return file


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1))
def test_any_path_is_that_very_file(name: str) -> None:
    path = Path("/folder") / name
    assert make_url(url_of_file(path)).database == str(path)
    assert settled(url_of_file(path)) == url_of_file(path)


def test_a_relative_file_means_the_same_from_elsewhere() -> None:
    assert settled("sqlite:///rel.db") == f"sqlite:///{Path.cwd()}/rel.db"
    assert settled("postgresql://u:p@h/d") == "postgresql://u:p@h/d"


@pytest.mark.parametrize(
    "url",
    [
        "sqlite+foo:///x",
        "sqlite+aiosqlite:///x",
        "sqlite:///x?timeout=abc",
        "postgresql://u:secret@h:abc/d",
        "sqlite:///\ud800",
        "postgresql+asyncpg://u@h/d",
    ],
)
def test_a_url_that_is_none_of_ours_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match="a database must be") as refused:
        History.open(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("damage", "read"),
    [
        ("update nodes set state='zz'", History.entries),
        ("update nodes set state='zz'", History.summary),
        ("update nodes set since_s='abc'", History.entries),
        ("update records set body='garbage'", lambda h: h.records(1)),
        ("update records set body=x'00'", lambda h: h.records(1)),
    ],
)
def test_a_damaged_row_is_said(
    file: Path, damage: str, read: Callable[[History], object], tmp_path: Path
) -> None:
    (tmp_path / "node").write_text("n1\n")
    (tmp_path / "x.marks").write_text("5 1 1000\n")
    with History.open(url_of_file(file)) as history:
        assert ingest_folder(history, tmp_path).folded.num_new == 1
        with sqlite3.connect(file) as connection:
            connection.execute(damage)
        connection.close()
        with pytest.raises(RecordError, match="damaged"):
            read(history)


def test_a_lost_history_is_not_made_anew_by_an_upgrade(file: Path) -> None:
    file.unlink()
    with pytest.raises(RecordError, match="restore it from a copy"):
        History.upgrade(url_of_file(file))
    assert not file.exists()


def test_a_history_whose_making_was_cut_short_says_so(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("delete from fleet")
    connection.close()
    with pytest.raises(RecordError, match="cut short"):
        History.open(url_of_file(file))
    History.create(url_of_file(file), is_simulation=True).close()


@pytest.mark.parametrize("text", ["x=" + "[" * 100_000, "x=" + "{a=" * 50_000, "[nodes.a.a.a.a]"])
def test_a_map_nested_without_end_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text(text)
    with pytest.raises(ConfigError, match="must"):
        NameMap.read(tmp_path / "map.toml")


def test_a_folder_that_cannot_be_read_is_said(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "results"
    (results / "closed").mkdir(parents=True)
    scan = os.scandir

    def closed(path: str) -> Iterator[os.DirEntry[str]]:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", closed)
    with History.open(url_of_file(file)) as history:
        (problem,) = ingest_folder(history, results).problems
    assert "must be readable" in problem
