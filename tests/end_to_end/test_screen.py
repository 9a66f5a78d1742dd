# SPDX-License-Identifier: Apache-2.0
"""The command line as a user runs it."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from end_to_end.cli import COMMAND, QUICK, environment, run, start, strict_json
from truestep.cli.main import COMMANDS
from truestep.store.journal import Journal

SOUND = ("screen", *QUICK, "--test", "exercise_sound")
DEFECT = (
    "screen",
    *QUICK,
    *("--test", "arithmetic_float32"),
    *("--simulate", "flip:add/float32,device=sim:1"),
)
WIDTH = 100
LIMIT_BYTES = 2000


def is_narrow(text: str) -> bool:
    """Whether all but what is copied whole, a command or a path, fits the width."""
    copied = ("Repeat: ", "Results: ")
    return all(len(x) <= WIDTH for x in text.splitlines() if not x.startswith(copied))


@pytest.fixture(scope="module")
def defect(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("defect")
    return folder, run(*DEFECT, "--long", "--out", folder)


def test_a_sound_node_passes_and_says_what_was_ruled_out(tmp_path):
    done = run(*SOUND, "--out", tmp_path / "a folder")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Outcome: pass" in done.stdout
    assert "1 in " in done.stdout
    assert "Simulated" in done.stdout
    assert is_narrow(done.stdout)
    assert len(list(Journal(tmp_path / "a folder" / "journal.jsonl").read())) == 2


def test_a_defect_is_told_with_its_device_and_how_to_repeat_it(defect):
    folder, done = defect
    assert done.returncode == 1
    for words in ("Outcome: fail", "suspect: device sim:1", "miscompare_repeated", "next:"):
        assert words in done.stdout, done.stdout
    assert is_narrow(done.stdout)
    (command,) = (x for x in done.stdout.splitlines() if x.startswith("Repeat: "))
    assert command.startswith(f"Repeat: truestep replay {folder}/evidence/")


def test_an_odd_folder_keeps_what_is_copied_on_one_line(tmp_path):
    done = run(*DEFECT, "--out", tmp_path / "a\n:smile:[red]'b")
    assert done.returncode == 1
    (repeat,) = (x for x in done.stdout.splitlines() if x.startswith("Repeat: "))
    (results,) = (x for x in done.stdout.splitlines() if x.startswith("Results: "))
    assert r"a\012:smile:[red]\'b/evidence/" in repeat
    assert r"a\x0a:smile:[red]'b (result-" in results


def test_the_saved_failure_follows_its_device_on_replay(defect):
    folder, _ = defect
    (sheet,) = (folder / "evidence").glob("*.json")
    done = run("replay", sheet, "--times", 5, "--json")
    told = strict_json(done.stdout)
    assert done.returncode == 2, "a simulated failure says nothing of hardware"
    assert told["conclusion"] == "the failure follows the device"
    assert (told["suspect"], told["is_simulated"]) == ("sim:1", True)
    table = run("replay", sheet, "--times", 2, "--device", "sim:0")
    assert table.returncode == 2
    assert "not reproduced here; the earlier evidence stays" in table.stdout
    assert "(simulated)" in table.stdout
    assert "Simulated: it says nothing of hardware." in table.stdout
    assert is_narrow(table.stdout)
    refused = run("replay", sheet, "--device", "cuda:7")
    assert refused.returncode == 2
    assert "cuda:7" in refused.stderr


def test_torch_screens_this_node_at_level_1(tmp_path):
    pytest.importorskip("torch")
    done = run("screen", "--backend", "torch", "--minutes", "0.1", "--json", "--out", tmp_path)
    told = strict_json(done.stdout)
    assert (done.returncode, told["outcome"]) == (0, "pass"), done.stderr
    assert not told["run"]["is_simulated"]
    by_site = {p["site"] for r in told["records"] for p in r["verdict"]["power"]}
    assert {"matmul/fp32", "matmul/bf16"} <= by_site
    assert Path(tmp_path / f"result-{told['run']['id']}.json").read_text() == done.stdout


@pytest.mark.parametrize(
    ("test", "code", "reason"),
    [
        ("exercise_exit", 2, "crashed"),
        ("exercise_impossible", 2, "missing_capability"),
    ],
)
def test_json_is_one_strict_document_whatever_happens(tmp_path, test, code, reason):
    done = run("screen", *QUICK, "--test", test, "--json", "--out", tmp_path)
    told = strict_json(done.stdout)
    assert (done.returncode, told["exit_code"], told["schema_version"]) == (code, code, 1)
    assert {r["verdict"]["reason"] for r in told["records"]} == {reason}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("screen", *QUICK, "--device", "cuda:9"), "got cuda:9. Here are sim:0, sim:1"),
        (("screen", *QUICK, "--test", "no_such"), "got 'no_such'"),
        (("screen", "--backend", "fortran"), "must be one of auto"),
        (("screen", "--simulate", "flop:matmul"), "flop:matmul"),
        (("screen", "--simulate", "flip:"), "KIND:SITE"),
        (("screen", "--simulate", "flip:matmul,rate=2"), "rate must lie in"),
        (("screen", "--simulate", "flip:matmul,rate=x"), "rate must be a number"),
        (("screen", "--simulate", "flip:matmul,size=1"), "'size=1'"),
        (("screen", "--simulate", "flip:matmul,bit=64"), "bit must lie in"),
        (("screen", "--level", "5"), "5"),
        (("screen", *QUICK, "--minutes", "nan"), "must be a finite number, got nan"),
        (("screen", *QUICK, "--minutes", "inf"), "inf is not in the range"),
        (("replay", "/nonexistent.json"), "nonexistent.json"),
        (("frobnicate",), "frobnicate"),
    ],
)
def test_wrong_use_is_told_and_ends_with_2(tmp_path, arguments, words):
    done = run(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_has_the_id_that_a_controller_gave_it(tmp_path):
    run_id = "0123456789abcdef" * 2
    ran = run("screen", *QUICK, "--test", "matmul", "--run-id", run_id, "--out", tmp_path)
    assert ran.returncode == 0, ran.stderr
    document = strict_json((tmp_path / f"result-{run_id}.json").read_text())
    assert {r["run_id"] for r in document["records"]} == {run_id} == {document["run"]["id"]}
    assert len({r["id"] for r in document["records"]}) == len(document["records"])
    refused = run("screen", *QUICK, "--run-id", "../../etc", "--out", tmp_path)
    assert refused.returncode == 2
    assert "small letters and digits" in refused.stderr


def test_evidence_that_is_no_evidence_is_refused(tmp_path):
    (tmp_path / "x.json").write_text('{"a": NaN}')
    done = run("replay", tmp_path / "x.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "this is not evidence of a screening" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_exercise_is_marked_and_never_repeated(tmp_path):
    done = run(
        *("screen", "--backend", "numpy", "--minutes", "0.01", "--out", tmp_path),
        *("--test", "exercise_sound", "--test", "exercise_wrong", "--json"),
    )
    told = strict_json(done.stdout)
    assert told["run"]["is_simulated"]
    assert all(r["is_simulated"] for r in told["records"])
    sheet = next((tmp_path / "evidence").glob("*exercise_wrong*.json"))
    refused = run("replay", sheet)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "only rehearses the runner" in refused.stderr


def test_an_unknown_drains_no_node_in_a_prolog_and_is_told(tmp_path):
    done = run(
        *("screen", *QUICK, "--test", "exercise_silent"),
        *("--exit-style", "slurm", "--json", "--out", tmp_path),
    )
    assert done.returncode == strict_json(done.stdout)["exit_code"] == 0
    assert "alert" in done.stderr


def test_a_file_in_the_way_of_the_results_sends_them_to_standard_output(tmp_path):
    (tmp_path / "file").write_text("")
    done = run(*SOUND, "--json", "--out", tmp_path / "file" / "results")
    assert done.returncode == 0
    assert strict_json(done.stdout)["outcome"] == "pass"
    assert "results cannot be kept on disk" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_read_only_site_and_no_home_are_no_obstacle(tmp_path):
    """As a user who owns nothing: no home, and a working folder that cannot be written."""
    site = tmp_path / "site"
    site.mkdir(mode=0o755)
    become = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    env = environment(HOME="/nonexistent")
    look = "import click, numpy, sys, truestep; print(sys.base_prefix)"
    same = [*become, sys.executable, "-c", look]
    seen = subprocess.run(same, env=env, capture_output=True, text=True, check=False, cwd=site)
    if seen.stdout.strip() != sys.base_prefix:
        pytest.skip("another user cannot read this Python or this checkout")
    done = run(*SOUND, "--json", before=become, cwd=site, env=env)
    assert done.returncode == 0, done.stderr
    assert strict_json(done.stdout)["outcome"] == "pass"
    assert "results cannot be kept on disk" in done.stderr


def _small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, LIMIT_BYTES))


def test_a_full_disk_is_told_and_does_not_change_the_exit_status(tmp_path):
    done = run(*DEFECT, "--json", "--out", tmp_path, preexec_fn=_small_files)
    assert done.returncode == strict_json(done.stdout)["exit_code"] == 1
    assert "results cannot be kept on disk" in done.stderr


def test_a_result_that_does_not_fit_leaves_nothing_behind(tmp_path, run_python):
    code = (
        "import resource, sys; from pathlib import Path; from truestep.cli.output import Results; "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({LIMIT_BYTES}, {LIMIT_BYTES})); "
        f"results = Results(Path(sys.argv[1])); results.write('r.json', 'x' * {LIMIT_BYTES + 1}); "
        "print(results.folder)"
    )
    assert run_python(code, tmp_path).strip() == "None"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [(*SOUND, "--json"), ("tests",)])
def test_output_that_cannot_be_written_is_never_a_pass(tmp_path, arguments):
    more = ("--out", tmp_path) if arguments[0] == "screen" else ()
    with Path("/dev/full").open("w") as full:
        done = run(*arguments, *more, stdout=full)
    assert done.returncode == 2
    assert "output" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("form", [["--json"], []], ids=["json", "tables"])
def test_a_reader_that_has_gone_is_no_defect_and_no_traceback(tmp_path, form):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        done = run(*SOUND, *form, "--out", tmp_path, stdout=pipe)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_two_screenings_at_once_lose_nothing(tmp_path):
    slow = ("screen", *QUICK, "--minutes", "0.02", "--test", "exercise_slow", "--json")
    with (
        start(*slow, "--out", tmp_path) as one,
        start(*slow, "--out", tmp_path) as other,
    ):
        told = [strict_json(p.communicate(timeout=90)[0]) for p in (one, other)]
    reasons = [r["verdict"]["reason"] for t in told for r in t["records"]]
    assert len(reasons) == 4
    assert set(reasons) <= {"passed", "locked"}
    assert reasons.count("passed") >= 2
    kept = {r.id for r in Journal(tmp_path / "journal.jsonl").read()}
    assert kept == {r["id"] for t in told for r in t["records"]}


def test_every_test_is_listed_and_one_is_told_in_full():
    listed = run("tests")
    assert listed.returncode == 0
    assert is_narrow(listed.stdout)
    assert "matmul_exact_fp32" in listed.stdout
    assert "exercise" not in listed.stdout
    full = run("tests", "matmul_exact_fp32")
    for key in ("stresses", "known_because", "blind_to", "needs", "min_rounds"):
        assert key in full.stdout
    assert "[" not in full.stdout
    plain = strict_json(run("tests", "matmul", "--json").stdout)
    assert {t["reference"] for t in plain["tests"]} == {"exact"}


def test_devices_are_listed_and_none_is_2():
    told = strict_json(run("devices", "--backend", "numpy", "--json").stdout)
    assert {d["kind"] for d in told["devices"]} == {"cpu"}
    done = run("devices", "--backend", "numpy", "--simulate-devices", 3)
    assert done.returncode == 0
    assert is_narrow(done.stdout)
    assert "simulated" in done.stdout


def test_the_selftest_finds_what_it_plants_and_fails_when_blind():
    chosen = ("selftest", "--backend", "numpy", "--test", "integers", "--simulate-devices", 1)
    done = run(*chosen)
    assert done.returncode == 0
    assert "Planted faults found in 2 of 2 tests." in done.stdout
    assert run(*chosen, "--simulate", "blind").returncode == 2


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_has_an_example_and_fits(name):
    done = run(*filter(None, [name]), "--help", env=environment(COLUMNS="200"))
    assert done.returncode == 0
    assert re.search(r"Example|Start with", done.stdout)
    assert is_narrow(done.stdout)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_made(shell):
    env = environment(_TRUESTEP_COMPLETE=f"{shell}_source")
    code = "import sys; sys.argv[0] = 'truestep'; from truestep.cli.main import main; main()"
    done = subprocess.run(
        [*COMMAND[:4], code], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "truestep" in done.stdout


def closing(redirections: str) -> tuple[str, ...]:
    """A shell that starts what follows with streams closed."""
    return ("sh", "-c", f'exec "$@" {redirections}', "sh")


@pytest.mark.parametrize("redirections", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_output_is_no_defect_and_nothing_takes_its_place(tmp_path, redirections):
    done = run(*SOUND, "--json", "--out", tmp_path, before=closing(redirections))
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")
    assert len(list(Journal(tmp_path / "journal.jsonl").read())) == 2
    assert not Journal(tmp_path / "journal.jsonl").scan().num_damaged


def test_a_closed_error_stream_changes_no_exit_status(tmp_path):
    done = run(*SOUND, "--json", "--out", tmp_path, before=closing("<&- 2>&-"))
    assert (done.returncode, strict_json(done.stdout)["outcome"]) == (0, "pass")
    assert run("frobnicate", before=closing("2>&-")).returncode == 2


@pytest.mark.parametrize("words", [("frobnicate",), ("screen", "--device", "cuda:9", *QUICK)])
def test_an_error_that_cannot_be_told_is_no_defect(tmp_path, words):
    with Path("/dev/full").open("w") as full:
        assert run(*words, stderr=full, cwd=tmp_path).returncode == 2


@pytest.mark.parametrize("form", [["--json"], []], ids=["json", "tables"])
def test_a_name_that_the_encoding_lacks_does_not_hide_a_defect(tmp_path, form):
    env = environment(PYTHONIOENCODING="ascii")
    done = run(*DEFECT, *form, "--out", tmp_path / "ü", env=env)
    assert done.returncode == 1, done.stderr
    if form:
        assert strict_json(done.stdout)["outcome"] == "fail"
    else:
        assert "Outcome: fail" in done.stdout


def test_loading_a_command_starts_no_threads_and_leaves_the_environment_as_it_was():
    """Each thread of OpenBLAS takes memory, and without it the process ends with 1."""
    code = (
        "import os; before = dict(os.environ); from truestep.cli.main import cli; "
        "cli.get_command(None, 'screen'); import numpy; "
        "print(len(os.listdir('/proc/self/task')), os.environ == before)"
    )
    env = {k: v for k, v in environment().items() if not k.endswith("_NUM_THREADS")}
    for more in ({}, {"OMP_NUM_THREADS": "2"}):
        seen = subprocess.run(
            [*COMMAND[:4], code], env=env | more, capture_output=True, text=True, check=True
        )
        assert seen.stdout.split() == ["1", "True"]


def test_a_planted_fault_that_hits_nothing_is_told(tmp_path):
    nowhere = ("--simulate", "flip:nosuch/fp32", "--simulate-devices", "1", "--out", tmp_path)
    done = run("screen", *QUICK, "--test", "arithmetic_float32", *nowhere)
    assert "No planted fault hit anything" in done.stdout
