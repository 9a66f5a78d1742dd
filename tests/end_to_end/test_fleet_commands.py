# SPDX-License-Identifier: Apache-2.0
"""The history of a fleet through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from end_to_end.cli import QUICK, run, start, strict_json


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    folder = tmp_path / "fleet"
    assert run("fleet", "init", "--fleet", folder, "--simulation").returncode == 0
    return folder


def status(fleet: Path) -> Any:
    return strict_json(run("fleet", "status", "--json", "--fleet", fleet).stdout)


def test_a_screening_is_folded_in_once_under_its_mapped_serial(fleet: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    screened = run("screen", *QUICK, "--test", "cast", "--out", results, "--json")
    document = json.loads(screened.stdout)
    name = document["records"][0]["node"]["name"]
    lost = run("fleet", "ingest", "--fleet", fleet, results)
    assert lost.returncode == 2
    assert "must be known" in lost.stderr
    (tmp_path / "map.toml").write_text(f'[nodes."{name}"]\nserial = "SIM-0"\n')
    assert run("fleet", "map", "--fleet", fleet, tmp_path / "map.toml").returncode == 0
    first = run("fleet", "ingest", "--fleet", fleet, results)
    again = run("fleet", "ingest", "--fleet", fleet, results)
    assert (first.returncode, again.returncode) == (0, 0), first.stderr
    assert f"{len(document['records'])} new" in first.stdout
    assert " 0 new" in again.stdout
    found = status(fleet)
    assert found["states"] == {"new": 1}
    assert found["refused"] == []
    serial = document["records"][0]["device"]["serial"]
    for command in ("device", "history"):
        named = run("fleet", command, "--fleet", fleet, serial)
        assert (named.returncode, named.stderr) == (0, ""), command
    everyone = run("fleet", "status", "--all", "--fleet", fleet)
    assert f"{name}: new" in everyone.stdout


def test_a_fleet_is_made_once_and_its_file_is_for_its_owner(fleet: Path) -> None:
    again = run("fleet", "init", "--fleet", fleet)
    assert again.returncode == 2
    assert "must hold no fleet yet" in again.stderr
    assert (fleet / "fleet.json").stat().st_mode & 0o777 == 0o600
    assert run("fleet", "init", "--fleet", fleet, "--upgrade").returncode == 0
    assert run("fleet", "init", "--fleet", fleet, "--rebuild").returncode == 0


def test_a_map_says_what_it_did_to_nodes_that_were_known(fleet: Path, tmp_path: Path) -> None:
    for serial, says in (("S1", "mapped: 1; known and not in this file: 0"), ("S2", "n1@1")):
        (tmp_path / "map.toml").write_text(f'[nodes.n1]\nserial = "{serial}"\n')
        assert says in run("fleet", "map", "--fleet", fleet, tmp_path / "map.toml").stdout
    (tmp_path / "map.toml").write_text('[nodes.n2]\nserial = "S3"\n')
    told = run("fleet", "map", "--fleet", fleet, tmp_path / "map.toml").stdout
    assert "not in this file: 2" in told


def test_a_fleet_whose_making_was_cut_short_is_made_by_the_next_try(fleet: Path) -> None:
    (fleet / "fleet.json").unlink()
    assert run("fleet", "init", "--fleet", fleet).returncode == 2  # no simulation: another fleet
    assert run("fleet", "init", "--fleet", fleet, "--simulation").returncode == 0
    assert status(fleet)["num_nodes"] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("status",), "must be the folder of a fleet"),
        (("init", "--db", "mysql://u:secret@h/d"), "must be sqlite"),
        (("init", "--upgrade", "--simulation"), "stand alone"),
        (("nothing",), "No such command"),
    ],
)
def test_wrong_use_is_said_and_ends_with_2(
    arguments: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    ended = run("fleet", *arguments, "--fleet", tmp_path / "none")
    assert ended.returncode == 2
    assert says in ended.stderr
    assert "secret" not in ended.stderr


def test_a_damaged_fleet_file_is_said(fleet: Path) -> None:
    for text in ("{", "[]", '{"db": 3}', "[" * 100_000):
        (fleet / "fleet.json").write_text(text)
        ended = run("fleet", "status", "--fleet", fleet)
        assert ended.returncode == 2
        assert "fleet.json must" in ended.stderr


def test_a_hostile_note_is_kept_and_shown_escaped(fleet: Path, tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text('[nodes."n0.x"]\nserial = "S0"\nrack = "[red]r1"\n')
    run("fleet", "map", "--fleet", fleet, tmp_path / "map.toml")
    text = "[bold]pass[/] \x1b[2J <script>"
    assert run("fleet", "note", "n0", text, "--fleet", fleet).returncode == 0
    for what in ("node", "history"):
        shown = run("fleet", what, "S0", "--fleet", fleet).stdout
        assert "[bold]pass" in shown
        assert "\x1b" not in shown
        assert max(map(len, shown.splitlines())) <= 100
    node = strict_json(run("fleet", "node", "n0", "--json", "--fleet", fleet).stdout)
    assert node["steps"][0]["verdict"]["detail"] == text
    lines = run("fleet", "history", "n0", "--json", "--fleet", fleet).stdout.splitlines()
    assert strict_json(lines[0])["subject"] == "note"
    assert run("fleet", "note", "n0", " ", "--fleet", fleet).returncode == 2


def test_a_device_is_shown_where_it_was(fleet: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    screened = run("screen", *QUICK, "--test", "cast", "--out", results, "--json")
    name = json.loads(screened.stdout)["records"][0]["node"]["name"]
    (tmp_path / "map.toml").write_text(f'[nodes."{name}"]\nserial = "SIM-0"\n')
    run("fleet", "map", "--fleet", fleet, tmp_path / "map.toml")
    run("fleet", "ingest", "--fleet", fleet, results)
    node = strict_json(run("fleet", "node", name, "--json", "--fleet", fleet).stdout)
    serial = node["devices"][0]["serial"]
    assert serial.startswith("SIM-0/")
    device = strict_json(run("fleet", "device", serial, "--json", "--fleet", fleet).stdout)
    assert device["placements"][0]["name"] == name
    assert sum(device["outcomes"].values()) >= 1
    assert run("fleet", "device", "none", "--fleet", fleet).returncode == 2


def test_help_needs_no_database_libraries(tmp_path: Path) -> None:
    shown = run("fleet", "--help")
    assert shown.returncode == 0
    assert all(name in shown.stdout for name in ("init", "ingest", "map", "status"))


def test_what_other_tools_say_is_kept_once_and_asks_for_a_screening(
    fleet: Path, tmp_path: Path
) -> None:
    names = "".join(f'[nodes.n{n}]\nserial = "SIM-{n}"\n' for n in range(3))
    (tmp_path / "map.toml").write_text(names)
    assert run("fleet", "map", "--fleet", fleet, tmp_path / "map.toml").returncode == 0
    (tmp_path / "bad.txt").write_text("GPU 0: FAULTY \x1b[2J\n")
    (tmp_path / "good.txt").write_text("GPU 0: OK\n")
    said = [f"n{n}={tmp_path / ('bad.txt' if n == 1 else 'good.txt')}" for n in range(3)]
    attach = ("fleet", "attach", "--fleet", fleet, "--tool", "burn")
    first, again = run(*attach, *said), run(*attach, *said)
    assert (first.returncode, again.returncode) == (0, 0), first.stderr
    assert "n1: tool_reported: burn says faulty: devices 0" in first.stdout
    assert again.stdout.count("kept already") == 3
    assert "\x1b" not in first.stdout
    assert len(list((fleet / "attached").iterdir())) == 2
    named = {node["name"]: node["num_open"] for node in status(fleet)["named"]}
    assert named == {"n1": 1}
    slow = run(*attach, "--least", "431", "n0=15.1", "n1=440", "n2=439")
    assert "n0: slow" in slow.stdout
    (tmp_path / "kernel.log").write_text("NVRM: Xid (PCI:0000:3b:00): 31, pid=7\n")
    log = ("fleet", "attach", "--fleet", fleet, "--tool", "kernel-log")
    users = [run(*log, "--uid", uid, f"n2={tmp_path / 'kernel.log'}").stdout for uid in "12345"]
    assert ["spread" in text for text in users] == [False] * 4 + [True]
    for wrong in (["n9=x"], ["n1"], ["n1=/nowhere"]):
        assert run(*attach, *wrong).returncode == 2


def test_no_name_reaches_the_terminal_raw(tmp_path: Path) -> None:
    odd = tmp_path / "odd\x1b[31m\n\x07"
    missing = run("fleet", "status", "--fleet", odd)
    made = run("fleet", "init", "--fleet", odd, "--simulation")
    (odd / "journals").mkdir()
    taken = run("fleet", "ingest", "--fleet", odd, odd / "journals")
    assert [e.returncode for e in (missing, made, taken)] == [2, 0, 0]
    for ended in (missing, made, taken):
        assert "\x1b" not in ended.stdout + ended.stderr
        assert "\\x1b" in ended.stdout + ended.stderr


def test_of_several_makers_of_a_fleet_one_makes_it(tmp_path: Path) -> None:
    folder = tmp_path / "fleet?x=%20"
    makers = [start("fleet", "init", "--fleet", folder, "--simulation") for _ in range(4)]
    for maker in makers:
        maker.communicate(timeout=60)
    assert sorted(maker.returncode for maker in makers) == [0, 2, 2, 2]
    assert {f.name for f in tmp_path.iterdir()} == {folder.name}
    assert status(folder)["num_nodes"] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("--tool", "burn", "--least", "nan", "n0=1"),
        ("--tool", "burn", "--least", "inf", "n0=1"),
        ("--tool", "burn", "--least", "1", "n0=inf"),
        ("--tool", "burn", "--least", "1", "n0=nan"),
        ("--tool", "burn", "--least", "1", "n0=1", "other=2"),
        ("--tool", "kernel-log", "--least", "1", "n0=3"),
        ("--tool", "kernel-log", "--uid", "a\x1b", "n0=3"),
        ("--tool", "a/b", "--least", "1", "n0=1"),
    ],
)
def test_what_cannot_be_meant_is_not_attached(
    arguments: tuple[str, ...], fleet: Path, tmp_path: Path
) -> None:
    (tmp_path / "map.toml").write_text('[nodes.n0]\naliases = ["other"]\n')
    run("fleet", "map", "--fleet", fleet, tmp_path / "map.toml")
    ended = run("fleet", "attach", "--fleet", fleet, *arguments)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert not (fleet / "attached").exists()


def test_a_log_without_errors_says_so(fleet: Path, tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text("[nodes.n0]\n")
    run("fleet", "map", "--fleet", fleet, tmp_path / "map.toml")
    (tmp_path / "log").write_text("all quiet\n")
    log = ("fleet", "attach", "--fleet", fleet, "--tool", "kernel-log", f"n0={tmp_path / 'log'}")
    assert "no error of a device" in run(*log).stdout
