# SPDX-License-Identifier: Apache-2.0
"""The shipped digests are what every library, kernel and number of threads gives."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module, resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truestep
from truestep.cli.golden import command
from truestep.errors import ConfigError, RecordError
from truestep.workloads import exact_goldens
from truestep.workloads.exact_products import Mode
from truestep.workloads.exact_reference import CLASSES, ReferenceRun, digests_of
from truestep.workloads.exact_sizes import SIZES
from workloads.trainings import S, digests_on

FP32 = Mode("fp32", "float32")
BF16 = Mode("bf16", "bfloat16")
BF16_TO_FP32 = Mode("bf16", "float32")


def difference(mode: Mode, digests: Any) -> Any:
    return exact_goldens.load(S, mode.value_class).first_difference(digests)


@pytest.fixture
def threads() -> Iterator[Any]:
    torch: Any = pytest.importorskip("torch")
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("value_class", CLASSES)
def test_float64_gives_the_golden(value_class):
    run = ReferenceRun(S, value_class, "float64")
    made = np.stack([digests_of(shown) for _, shown in run.steps()])
    assert exact_goldens.load(S, value_class).first_difference(made) is None


@pytest.mark.parametrize("mode", [FP32, Mode("int8", "int32"), Mode("fp64", "float64")])
def test_numpy_gives_the_golden_in_every_precision(mode):
    num_steps = S.num_steps if mode == FP32 else 12
    assert difference(mode, digests_on("numpy", mode, num_steps=num_steps)) is None


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("mode", [FP32, BF16], ids=str)
def test_torch_gives_the_golden_whatever_the_number_of_threads(threads, mode, num_threads):
    threads(num_threads)
    # On a busy machine threads wait for each other: the first steps stand for the rest.
    num_steps = S.num_steps if num_threads == 1 else 6
    assert difference(mode, digests_on("torch", mode, num_steps=num_steps)) is None


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_torch_gives_the_golden_with_the_kernels_of_either_isa(isa):
    pytest.importorskip("torch")
    code = (
        "import sys; from workloads import test_exact_goldens as t; sys.exit(t.differs_on_torch())"
    )
    folders = (Path(truestep.__file__).parents[1], Path(__file__).parents[1])
    environment = os.environ | {
        "ATEN_CPU_CAPABILITY": isa,
        "MKL_ENABLE_INSTRUCTIONS": isa.upper(),
        "ONEDNN_MAX_CPU_ISA": {"avx2": "AVX2", "avx512": "AVX512_CORE"}[isa],
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
    }
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)


def differs_on_torch() -> bool:
    return any(
        difference(mode, digests_on("torch", mode, num_steps=24)) is not None
        for mode in (FP32, BF16)
    )


@pytest.mark.parametrize("mode", [FP32, BF16_TO_FP32, BF16], ids=str)
def test_jax_gives_the_golden_when_compiled(mode):
    pytest.importorskip("jax")
    assert difference(mode, digests_on("jax", mode, compiled=True)) is None


def test_jax_gives_the_golden_operation_by_operation():
    pytest.importorskip("jax")
    assert difference(FP32, digests_on("jax", FP32, num_steps=2)) is None


@pytest.mark.parametrize("value_class", CLASSES)
@pytest.mark.parametrize("name", ["M", "L"])
def test_the_larger_goldens_begin_as_the_host_computes(name, value_class):
    size = SIZES[name]
    golden = exact_goldens.load(size, value_class)
    steps = ReferenceRun(size, value_class).steps()
    made = np.stack([digests_of(next(steps)[1]) for _ in range(2)])
    assert golden.first_difference(made) is None


def test_a_difference_is_named_by_step_and_operation():
    golden = exact_goldens.load(S, "accumulator")
    other = golden.digests.copy()
    other[12, 4, 1] ^= np.uint64(1)
    other[40, 0, 0] ^= np.uint64(1)
    assert str(golden.first_difference(other)) == "step 12 forward layer0.attention.scores"
    assert str(golden.first_difference(other[20:], first_step=20)) == "step 40 forward table"
    with pytest.raises(ValueError, match="another training"):
        golden.first_difference(other[:, :-1])


def test_a_golden_of_another_definition_is_refused(tmp_path, monkeypatch):
    golden = exact_goldens.load(S, "accumulator")
    folder = tmp_path / "goldens"
    folder.mkdir()
    monkeypatch.setattr(resources, "files", lambda _: tmp_path)
    with pytest.raises(RecordError, match="must be a readable golden"):
        exact_goldens.load(S, "accumulator")
    path = exact_goldens.save(golden, folder)
    assert np.array_equal(exact_goldens.load(S, "accumulator").digests, golden.digests)
    path.rename(folder / exact_goldens.file_name(S, "bf16"))
    with pytest.raises(RecordError, match="got another"):
        exact_goldens.load(S, "bf16")


def test_a_size_or_class_that_does_not_exist_is_wrong_use():
    with pytest.raises(ConfigError, match="one of S, M, L"):
        exact_goldens.size_of("XL")
    with pytest.raises(ConfigError, match="one of accumulator, bf16"):
        _ = ReferenceRun(S, "fp8").model


def test_the_goldens_stay_small():
    folder = Path(exact_goldens.__file__).parent / "goldens"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 3 << 20


def run_golden(*arguments: str) -> tuple[int, str]:
    testing = import_module("click.testing")
    result = testing.CliRunner().invoke(command, ["exact", *arguments])
    return result.exit_code, result.output


def test_the_command_makes_the_golden_again_in_integers_and_finds_it_equal():
    code, output = run_golden("--size", "S", "--check")
    assert (code, output) == (0, "exact S accumulator: all 6432 digests are equal\n")


def test_the_command_names_the_first_difference_and_ends_with_1(monkeypatch):
    golden = exact_goldens.load(S, "accumulator")
    wrong = golden.digests.copy()
    wrong[3, -1] += np.uint64(1)
    made = exact_goldens.Golden(S, "accumulator", wrong)
    monkeypatch.setattr(exact_goldens, "regenerate", lambda *_, **__: made)
    code, output = run_golden("--size", "S", "--check")
    assert code == 1
    assert "first difference is at step 3 update head" in output


def test_the_command_writes_a_golden_only_where_it_is_told_to(monkeypatch, tmp_path):
    golden = exact_goldens.load(S, "bf16")
    monkeypatch.setattr(exact_goldens, "regenerate", lambda *_, **__: golden)
    code, _ = run_golden("--size", "S", "--class", "bf16", "--out", str(tmp_path))
    assert code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["exact_s_bf16.safetensors"]
    assert run_golden("--size", "S")[0] == 2
    assert run_golden("--size", "S", "--check", "--out", str(tmp_path))[0] == 2
    assert run_golden()[0] == 2


def test_a_host_whose_float64_differs_from_its_integers_makes_no_golden(monkeypatch):
    def differing(self, a, b, *, precision, out, site):
        product = np.matmul(a, b).astype(np.float32)
        return product + (site.endswith("forward") and self.dtype == np.float64)

    monkeypatch.setattr("truestep.workloads.exact_reference.HostProducts.matmul", differing)
    with pytest.raises(RecordError, match="step 1 differs"):
        exact_goldens.regenerate(SIZES["M"], "accumulator", check_every=1)
