# SPDX-License-Identifier: Apache-2.0
"""Screenings inside the test process, with the numpy backend and little time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.context import BaseContext
from typing import Any

from truestep.backends.sampler import READER
from truestep.record import Record
from truestep.screening.launch import start_server
from truestep.screening.request import Report, Request
from truestep.screening.runner import Runner

TEST = "matmul_exact_fp32"


@cache
def server() -> BaseContext:
    return start_server("numpy")


@dataclass
class Onlooker:
    """Listens to a screening; `on_start` may act on it, and `stops` ends it."""

    on_start: Callable[[str], None] = lambda test_id: None
    stops: bool = False
    heard: list[str] = field(default_factory=list)

    def planned(self, num_tests: int, seconds: float) -> None:
        self.heard.append(f"planned {num_tests}")

    def started(self, test_id: str) -> None:
        self.heard.append(f"started {test_id}")
        self.on_start(test_id)

    def waiting(self) -> None:
        pass

    def finished(self, record: Record) -> None:
        self.heard.append(f"finished {record.subject}")

    def is_stopped(self) -> bool:
        return self.stops


def runner(
    onlooker: Onlooker | None = None,
    *,
    keep: Callable[[Record], None] = lambda record: None,
    reader: str = READER,
    **request: Any,
) -> Runner:
    wanted = Request(**{"backend": "numpy", "tests": (TEST,), "budget_s": 0.3, **request})
    return Runner(wanted, server(), onlooker or Onlooker(), keep, reader=reader)


def screened(**how: Any) -> Report:
    return runner(**how).run()
