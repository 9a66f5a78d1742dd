# SPDX-License-Identifier: Apache-2.0
"""The program that goes with a hand-off: it stands alone, and it sees what it must."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from truestep.fleet import reproducer

CASE = {"dtypes": ["bfloat16", "float16", "float32", "float64"], "seeds": [1, 2**63]}


@pytest.fixture
def case(tmp_path: Path) -> Path:
    file = tmp_path / "case.json"
    file.write_text(json.dumps(CASE))
    return file


def test_a_copy_runs_alone_and_passes_on_a_sound_device(case: Path) -> None:
    copy = case.with_name("reproducer.py")
    copy.write_bytes(Path(reproducer.__file__).read_bytes())
    alone = [sys.executable, "-I", str(copy), "--minutes", "0"]
    ended = subprocess.run(alone, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "6 products" in ended.stdout
    assert "0 wrong" in ended.stdout


@pytest.mark.parametrize("dtype", sorted(reproducer.LARGEST))
def test_every_element_type_is_exact_in_torch(dtype: str) -> None:
    multiplier = reproducer.Multiplier("cpu")
    multiplier.torch = pytest.importorskip("torch")
    a, b, expected = reproducer.operands(7, dtype)
    assert reproducer.differing(expected, multiplier.multiply(a, b, dtype)) == []


def test_one_wrong_bit_is_found_and_ends_with_1(
    case: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sound = reproducer.Multiplier.multiply

    def damaged(self: Any, a: Any, b: Any, dtype: str) -> Any:
        product = sound(self, a, b, dtype)
        product[9, 2] ^= 1
        return product

    monkeypatch.setattr(reproducer.Multiplier, "multiply", damaged)
    assert reproducer.main(["--case", str(case), "--minutes", "0"]) == 1
    assert "row 9, column 2" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["{", "[]", '{"dtypes": ["int4"], "seeds": [1]}', "{}", "\x00"])
def test_what_cannot_run_ends_with_2(text: str, tmp_path: Path) -> None:
    (tmp_path / "case.json").write_text(text)
    assert reproducer.main(["--case", str(tmp_path / "case.json"), "--minutes", "0"]) == 2
    assert reproducer.main(["--case", str(tmp_path / "none.json")]) == 2


def test_partial_sums_are_exact_in_the_narrowest_type() -> None:
    for dtype, largest in reproducer.LARGEST.items():
        digits = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}[dtype]
        assert largest**2 * reproducer.SIZE <= 2**digits
    a, b, product = reproducer.operands(3, "float32")
    assert np.array_equal(product, np.einsum("ij,jk->ik", a, b))
