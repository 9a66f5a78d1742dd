# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from pathlib import Path

import pytest

import truestep

HEAVY = ("jax", "ml_dtypes", "numpy", "safetensors", "torch")
NO_NOUNS = {"utils", "util", "helpers", "helper", "common", "manager", "misc", "base"}
NOUNS = sorted(path.stem for path in Path(truestep.__file__).parent.glob("[a-z]*.py"))

LOADED = """
import importlib, sys
importlib.import_module(sys.argv[1])
print(*sorted(set(sys.argv[2:]) & set(sys.modules)))
"""
OUTSIDE = """
import importlib, sys
before = set(sys.modules)
importlib.import_module(sys.argv[1])
names = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(name for name in names if name not in sys.stdlib_module_names))
"""


def modules(repository: Path) -> list[Path]:
    return sorted((repository / "src").rglob("*.py"))


@pytest.mark.parametrize(
    "module", ["truestep", "truestep.store", "truestep.store.schema", "truestep.store.journal"]
)
def test_importing_it_loads_no_array_library(run_python, module):
    assert run_python(LOADED, module, *HEAVY).split() == []


def test_the_check_of_loaded_libraries_can_fail(run_python):
    assert run_python(LOADED, "truestep.store.evidence", *HEAVY).split() == [
        "ml_dtypes",
        "numpy",
        "safetensors",
    ]


@pytest.mark.parametrize("noun", NOUNS)
def test_a_noun_loads_the_standard_library_only(run_python, noun):
    assert run_python(OUTSIDE, f"truestep.{noun}").split() == ["truestep"]


def test_no_module_is_longer_than_500_lines(repository):
    long = {
        path.name: num_lines
        for path in modules(repository)
        if (num_lines := len(path.read_text(encoding="utf-8").splitlines())) > 500
    }
    assert long == {}


def test_the_median_module_is_short(repository):
    lengths = [len(path.read_text(encoding="utf-8").splitlines()) for path in modules(repository)]
    assert sorted(lengths)[len(lengths) // 2] <= 200


def test_no_module_is_named_after_nothing(repository):
    names = {path.stem for path in modules(repository)} | {
        path.parent.name for path in modules(repository)
    }
    assert names & NO_NOUNS == set()


def test_every_python_file_begins_with_its_licence(repository):
    folders = ("src", "tests", "benchmarks", "recipes", "examples")
    files = [path for folder in folders for path in (repository / folder).rglob("*.py")]
    assert len(files) > 20
    missing = [
        path.name
        for path in files
        if not path.read_text(encoding="utf-8").startswith("# SPDX-License-Identifier: Apache-2.0")
    ]
    assert missing == []


def test_what_the_package_exports_is_there_and_sorted():
    assert list(truestep.__all__) == sorted(set(truestep.__all__))
    assert all(hasattr(truestep, name) for name in truestep.__all__)


def test_no_class_of_the_package_begins_with_test(repository):
    for path in modules(repository):
        assert "\nclass Test" not in path.read_text(encoding="utf-8"), path


def test_nothing_is_pickled_or_evaluated(repository):
    unsafe = re.compile(r"import (pickle|marshal|shelve)|from pickle|(?<![\w.])(eval|exec)\(")
    found = [path.name for path in modules(repository) if unsafe.search(path.read_text("utf-8"))]
    assert found == []
