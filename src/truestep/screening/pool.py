# SPDX-License-Identifier: Apache-2.0
"""Workers side by side: started, given tasks, ended in time, and restarted after a crash.

A result is booked by its task id alone, however late it comes. What cannot be booked is attributed
to nobody.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from multiprocessing import connection as mp_connection
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext

from truestep.backends import child
from truestep.reason import Reason
from truestep.screening import worker
from truestep.screening.tasks import Result, Setup, Task

EXIT_GRACE_S = 5.0
POLL_S = 0.2


class Bookings:
    """Which result belongs to which task."""

    def __init__(self) -> None:
        self._open: dict[str, str] = {}
        self._interim: dict[str, Result] = {}
        self.results: dict[str, Result] = {}
        self.unattributed: list[Result] = []

    def expect(self, task: Task, key: str) -> None:
        """Open a booking for the task of the target `key`."""
        self._open[task.id] = key

    def book(self, result: Result) -> str | None:
        """File a result under its own task; the key of its target, or None if it has no task."""
        key = self._open.get(result.task_id)
        if key is None:
            self.unattributed.append(result)
        elif result.is_interim:
            self._interim[result.task_id] = result
        else:
            del self._open[result.task_id]
            self._interim.pop(result.task_id, None)
            self.results[result.task_id] = result
        return key

    def close(self, task: Task, reason: Reason, detail: str) -> None:
        """File what a task had handed in when it ended early."""
        so_far = self._interim.get(task.id, Result(task_id=task.id))
        self.book(replace(so_far, is_interim=False, reason=reason, detail=detail))

    def is_open(self, task_id: str) -> bool:
        """Whether a result is still awaited."""
        return task_id in self._open


class Handle:
    """One worker process, its pipe and the task it is at."""

    def __init__(self, context: BaseContext, setup: Setup) -> None:
        self.setup = setup
        self.task: Task | None = None
        self.deadline_s = 0.0
        ours, theirs = context.Pipe()
        self.connection: Connection = ours
        self.process = child.start(
            context, worker.main, (theirs, setup), name=f"truestep-{setup.target.key}"
        )
        theirs.close()

    def give(self, task: Task, limit_s: float) -> None:
        """Hand over a task that must end within a limit."""
        self.task = task
        self.deadline_s = time.monotonic() + limit_s
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(task)

    def stop(self) -> None:
        """Ask the worker to hand in what it has."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(worker.STOP)

    def end(self) -> bool:
        """Hang up and end the process. False if it cannot be killed."""
        self.connection.close()
        return child.end(self.process)


class Pool:
    """One long-lived worker for each target."""

    def __init__(
        self, context: BaseContext, setups: Iterable[Setup], bookings: Bookings | None = None
    ) -> None:
        self.context = context
        self.bookings = bookings or Bookings()
        self.setups = {s.target.key: s for s in setups}
        self.hung: set[str] = set()
        self._handles: dict[str, Handle] = {}

    def run(
        self,
        tasks: Mapping[str, Task],
        *,
        limit_s: float,
        on_wait: Callable[[], None] = lambda: None,
    ) -> dict[str, Result]:
        """The result of each task, by the key of its target. Every task gets one.

        Args:
            tasks: One task for each target that takes part.
            limit_s: Wall seconds that each may take.
            on_wait: Called several times a second.
        """
        for key, task in tasks.items():
            self.bookings.expect(task, key)
            if key in self.hung:
                self.bookings.close(task, Reason.DRIVER_HUNG, "its process is stuck in the driver")
                continue
            self._handle(key).give(task, limit_s)
        self._wait(tasks, on_wait)
        return {key: self.bookings.results[task.id] for key, task in tasks.items()}

    def run_fresh(self, key: str, task: Task, *, limit_s: float) -> Result:
        """The result of a task in a process of its own."""
        with contextlib.closing(Pool(self.context, [self.setups[key]], self.bookings)) as pool:
            return pool.run({key: task}, limit_s=limit_s)[key]

    def interrupt(self) -> None:
        """Ask every busy worker to hand in what it has."""
        for handle in self._handles.values():
            if handle.task is not None:
                handle.stop()

    def close(self) -> None:
        """End all workers; those that cannot be killed are left behind."""
        for key in list(self._handles):
            self._drop(key)

    def _wait(self, tasks: Mapping[str, Task], on_wait: Callable[[], None]) -> None:
        while any(self.bookings.is_open(t.id) for t in tasks.values()):
            busy = {h.connection: k for k, h in self._handles.items() if h.task is not None}
            for ready in mp_connection.wait(list(busy), timeout=POLL_S):
                self._receive(busy[ready])  # type: ignore[index]
            for key in list(self._handles):
                self._enforce_limit(key)
            on_wait()

    def _receive(self, key: str) -> None:
        handle = self._handles[key]
        try:
            result = handle.connection.recv()
        except (EOFError, OSError):
            self._crashed(key)
            return
        if isinstance(result, Result):
            self.bookings.book(result)
            if result.is_interim:
                return
            if handle.task is not None and result.task_id == handle.task.id:
                handle.task = None
            if result.reason not in (None, Reason.INTERRUPTED, Reason.MISSING_CAPABILITY):
                # A device library may be unusable after an error: begin anew.
                self._drop(key)

    def _crashed(self, key: str) -> None:
        handle = self._handles[key]
        task = handle.task
        handle.process.join(EXIT_GRACE_S)
        code = handle.process.exitcode
        self._drop(key)
        if task is not None:
            self.bookings.close(task, Reason.CRASHED, _describe_exit(code))

    def _enforce_limit(self, key: str) -> None:
        handle = self._handles[key]
        if handle.task is None or time.monotonic() < handle.deadline_s:
            return
        task = handle.task
        is_ended = self._drop(key)
        if is_ended:
            self.bookings.close(task, Reason.TIMED_OUT, "it did not end within its limit")
        else:
            self.bookings.close(task, Reason.DRIVER_HUNG, "its process cannot be killed")

    def _handle(self, key: str) -> Handle:
        if key not in self._handles:
            self._handles[key] = Handle(self.context, self.setups[key])
        return self._handles[key]

    def _drop(self, key: str) -> bool:
        is_ended = self._handles.pop(key).end()
        if not is_ended:
            self.hung.add(key)
        return is_ended


def _describe_exit(code: int | None) -> str:
    if code is None:
        return "the worker closed its pipe"
    if code < 0:
        return f"the worker was ended by signal {-code} ({signal.strsignal(-code)})"
    return f"the worker ended with exit code {code}"
