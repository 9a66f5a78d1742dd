# SPDX-License-Identifier: Apache-2.0
"""Profiles of hypothesis, and a Python process that sees the same package as the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import truestep

# As in a worker. Threads that spin at barriers make small tensors a hundred times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
)


def _environment() -> dict[str, str]:
    package_folder = Path(truestep.__file__).parents[1]
    here = Path(__file__).parent
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (package_folder, here)))}


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return Path(__file__).parents[1]


@pytest.fixture(scope="session")
def start_python() -> Callable[..., subprocess.Popen[str]]:
    """Start `python -c code *arguments` on the package under test."""

    def start(code: str, *arguments: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture(scope="session")
def run_python(start_python: Callable[..., subprocess.Popen[str]]) -> Callable[..., str]:
    """Run `python -c code *arguments` to its end and give what it printed."""

    def run(code: str, *arguments: object) -> str:
        with start_python(code, *arguments) as process:
            output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        return output

    return run
