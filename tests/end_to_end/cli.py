# SPDX-License-Identifier: Apache-2.0
"""The command line in a process of its own, as a user or a scheduler starts it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import truestep

COMMAND = (
    sys.executable,
    "-W",
    "error",
    "-c",
    "from truestep.cli.main import main; main()",
)
QUICK = ("--backend", "numpy", "--minutes", "0.01", "--simulate-devices", "2")
LIMIT_S = 90.0


def environment(**changes: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(truestep.__file__).parents[1])} | changes


def start(
    *arguments: object, before: Sequence[str] = (), env: Mapping[str, str] | None = None, **how: Any
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*before, *COMMAND, *map(str, arguments)],
        env=environment() if env is None else env,
        stdin=subprocess.DEVNULL,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **how},
    )


def run(*arguments: object, **how: Any) -> subprocess.CompletedProcess[str]:
    with start(*arguments, **how) as process:
        output, errors = process.communicate(timeout=LIMIT_S)
    return subprocess.CompletedProcess(arguments, process.returncode, output, errors)


def strict_json(text: str) -> Any:
    """The one document in a text, which must hold nothing else and no NaN."""

    def refuse(name: str) -> NoReturn:
        raise ValueError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def descendants_of(session: int) -> set[int]:
    """All living processes of a session."""
    found = set()
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.add(int(folder.name))
    return found


def wait_until_gone(session: int, limit_s: float = 15.0) -> set[int]:
    """What is left of a session after a while; empty if nothing is."""
    end_s = time.monotonic() + limit_s
    while (left := descendants_of(session)) and time.monotonic() < end_s:
        time.sleep(0.05)
    return left
