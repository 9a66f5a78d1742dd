# SPDX-License-Identifier: Apache-2.0
"""What a person sees while a screening runs, and how Ctrl-C stops it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from truestep.record import Record
from truestep.report.text import shown


class Stop:
    """Set by the first Ctrl-C or SIGTERM; the second one ends the process at once."""

    def __init__(self) -> None:
        self.is_set = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Take a signal."""
        del number, frame
        if self.is_set:
            raise KeyboardInterrupt
        self.is_set = True

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take SIGINT and SIGTERM within the block."""
        taken = {n: signal.signal(n, self) for n in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in taken.items():
                signal.signal(number, handler)


class Bar:
    """A progress bar on standard error; silent where that is no terminal."""

    def __init__(self, console: Console, stop: Stop) -> None:
        self.stop = stop
        self._bar = Progress(
            TextColumn("[bold]{task.description:<28}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f} s"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=1.0)
        self._seconds_each = 0.0
        self._done_s = 0.0

    @contextmanager
    def showing(self) -> Iterator[None]:
        """Show the bar within the block."""
        with self._bar:
            yield

    def planned(self, num_tests: int, seconds: float) -> None:
        """The plan stands: the bar has a length."""
        self._seconds_each = seconds / max(num_tests, 1)
        self._bar.update(self._task, total=seconds)

    def started(self, test_id: str) -> None:
        """A test begins."""
        self._bar.update(self._task, description=test_id, completed=self._done_s)
        self._done_s += self._seconds_each

    def waiting(self) -> None:
        """Time passes."""

    def finished(self, record: Record) -> None:
        """A record was made; a fail is told at once."""
        if record.verdict is not None and record.verdict.outcome == "fail":
            device = record.device.id if record.device else ""
            self._bar.console.print(f"[red]fail[/red] {shown(f'{device} {record.subject}')}")

    def is_stopped(self) -> bool:
        """Whether somebody asked to stop."""
        return self.stop.is_set
