# SPDX-License-Identifier: Apache-2.0
"""The campaigns at a small scale, through the code that runs them in full."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from truestep.backends.open import open_backend
from truestep.screening.suite.matmul import NUM_REPEATS

pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _scripts(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The scripts can be loaded, and compute with one thread as they do by themselves."""
    monkeypatch.syspath_prepend(repository / "benchmarks")
    torch: Any = import_module("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_rare_flips_are_found_and_named() -> None:
    flips: Any = import_module("campaign_flips")
    findings = [flips.run_trial(trial) for trial in flips.trials(4)]
    for found in findings:
        assert found.num_calls >= 1_400
        assert found.num_hits == found.num_seen + found.num_masked
        assert found.is_found == found.is_named_but_for_zero == found.is_active
        assert found.num_false == 0
    # The chance that none of four is hit by one call in 200 is 10^-13.
    assert any(found.is_found for found in findings)
    assert "named rightly" in flips.report(findings)


def test_a_full_campaign_gives_every_bit_of_every_format_its_turn() -> None:
    flips: Any = import_module("campaign_flips")
    planned = flips.trials(flips.NUM_TRIALS)
    assert planned == flips.trials(flips.NUM_TRIALS)
    turns = {(t.precision, t.bit) for t in planned}
    widths = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8}
    assert turns == {(name, bit) for name, width in widths.items() for bit in range(width)}
    assert {t.test_id for t in planned} == set(flips.OPERATIONS)
    assert len({t.device for t in planned}) == flips.NUM_DEVICES


def test_a_flipped_sign_of_zero_is_counted_as_masked() -> None:
    flips: Any = import_module("campaign_flips")
    trial = next(t for t in flips.trials(200) if (t.precision, t.bit) == ("fp8", 7))
    found = flips.run_trial(trial)
    assert found.num_hits == found.num_seen + found.num_masked


def test_a_sound_machine_gives_no_alarm() -> None:
    clean: Any = import_module("campaign_clean")
    tally = clean.campaign(num_executions=1, num_comparisons=1, each=64)
    assert len(tally.executions) > 25
    assert tally.num_caught == tally.num_planted == len(tally.executions)
    assert tally.alarms.total() == 0
    assert tally.details == []
    assert tally.comparisons.total() > 1_500
    assert "False alarms: 0." in clean.report(tally)


def test_checked_products_are_the_bare_ones() -> None:
    stress: Any = import_module("bench_stress")
    backend = open_backend("torch")
    pairs = stress.pairs_of(backend, backend.devices()[0], side=64, num=2)
    assert all(pair.ratio > 0 for pair in pairs)
    assert f"{NUM_REPEATS} products of 64 x 64" in stress.report(
        64, [stress.row_of("x", 64, pairs)]
    )


@pytest.mark.parametrize(("count", "scale", "scaled"), [(200, 0.02, 4), (5, 0.02, 1), (5, 1, 5)])
def test_a_scaled_count_is_at_least_one(count: int, scale: float, scaled: int) -> None:
    sheet: Any = import_module("result_sheet")
    assert sheet.scaled(count, scale) == scaled


def test_only_a_full_run_writes_beside_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sheet: Any = import_module("result_sheet")
    monkeypatch.setattr(sheet, "FOLDER", tmp_path / "results")
    small = argparse.Namespace(scale=0.02, output=None)
    assert sheet.publish("text", what="flips", args=small) is None
    full = argparse.Namespace(scale=1.0, output=None)
    path = sheet.publish("text", what="flips", args=full, what_hardware="AMD EPYC, 2 cores")
    assert path.name.startswith("flips_amd-epyc-2-cores_20")
    assert path.read_text() == "text"


def test_the_script_for_accelerators_can_be_rehearsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu: Any = import_module("gpu")
    monkeypatch.setattr(gpu, "TESTS", ("cast", "matmul_exact_fp32", "matmul_exact_tf32"))
    monkeypatch.setattr(gpu, "SECONDS_EACH", 0.0)
    monkeypatch.setattr(gpu, "NUM_PAIRS", 1)
    monkeypatch.setattr(gpu, "DIGEST_BYTES", 1 << 20)
    found = tmp_path / "found.json"
    assert gpu.main(["--rehearse", "--output", str(tmp_path), "--json", str(found)]) == 0
    (sheet,) = tmp_path.glob("gpu_*.md")
    for part in ("Screening, level 1", "Products, checked and bare", "Digest of", "lacks matmul"):
        assert part in sheet.read_text()
    assert len(json.loads(found.read_text())["observations"]) >= 7


def test_the_script_for_accelerators_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu: Any = import_module("gpu")
    monkeypatch.setattr(gpu, "NEEDED", ("numpy", "no_such_library"))
    assert gpu.main([]) == 2
    assert capsys.readouterr().out.startswith("gpu.py needs no_such_library,")


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [(["pass", "pass"], 0), (["pass", "fail", "unknown"], 1), (["pass", "unknown"], 2), ([], 2)],
)
def test_what_was_not_judged_is_no_pass(outcomes: list[str], code: int) -> None:
    gpu: Any = import_module("gpu")
    results = [gpu.Screened(test_id="t", outcome=o) for o in outcomes]
    lacking = gpu.Screened(test_id="t", detail=f"{gpu.LACKS}fp8")
    assert gpu.exit_code([*results, lacking]) == code
