# SPDX-License-Identifier: Apache-2.0
"""Workers side by side: started, given tasks, ended in time, and restarted after a crash.

A result is booked by its task id alone, however late it comes. What cannot be booked is attributed
to nobody. A worker may send anything or hang at any byte of it: a thread for each reads what it
sends, so that the limit of a task holds whatever its worker does.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext

from truestep.backends import child
from truestep.errors import RecordError
from truestep.reason import Reason
from truestep.screening import worker
from truestep.screening.tasks import Result, Setup, Task
from truestep.store.schema import from_plain, loads

EXIT_GRACE_S = 5.0
POLL_S = 0.2

SEND_S = 1
"""A worker that reads nothing may hold its parent for so long."""

READER_GRACE_S = 1.0


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


@dataclass(frozen=True, slots=True)
class Gone:
    """The last that is heard of a worker.

    Attributes:
        garbage: What was wrong with what it sent; empty where it hung up.
    """

    garbage: str = ""


class Handle:
    """One worker process, its pipe and the task it is at.

    Args:
        context: How the process is started.
        setup: What it is started with.
        inbox: Gets this handle with each `Result` that the worker sends, and `Gone` at the end.
    """

    def __init__(
        self,
        context: BaseContext,
        setup: Setup,
        inbox: queue.SimpleQueue[tuple[Handle, Result | Gone]],
    ) -> None:
        self.setup = setup
        self.task: Task | None = None
        self.deadline_s = 0.0
        ours, theirs = context.Pipe()
        self.connection: Connection = ours
        # Of its own descriptor, so that hanging up never meets one that was closed and reused.
        self._line = socket.socket(fileno=os.dup(ours.fileno()))
        self._line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", SEND_S, 0))
        self.process = child.start(
            context, worker.main, (theirs, setup), name=f"truestep-{setup.target.key}"
        )
        theirs.close()
        self._inbox = inbox
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def give(self, task: Task, limit_s: float) -> None:
        """Hand over a task that must end within a limit."""
        self.task = task
        self.deadline_s = time.monotonic() + limit_s
        self._send(task)

    def stop(self) -> None:
        """Ask the worker to hand in what it has."""
        self._send(worker.STOP)

    def end(self) -> bool:
        """Hang up and end the process. False if it cannot be killed."""
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)
        self._line.close()
        self._reader.join(READER_GRACE_S)
        if not self._reader.is_alive():
            self.connection.close()
        return child.end(self.process)

    def _send(self, message: object) -> None:
        # One that has gone or takes nothing is found out by its silence.
        with contextlib.suppress(OSError):
            self.connection.send(message)

    def _read(self) -> None:
        """Pass on what the worker sends until it hangs up or sends what nobody can read."""
        while True:
            try:
                sent = self.connection.recv_bytes()
            except (EOFError, OSError):
                self._inbox.put((self, Gone()))
                return
            except Exception as error:  # noqa: BLE001  a damaged length asks for any memory
                self._inbox.put((self, Gone(_words_of(error))))
                return
            message = _message_in(sent)
            self._inbox.put((self, message))
            if isinstance(message, Gone):
                return


def _message_in(sent: bytes) -> Result | Gone:
    try:
        return from_plain(Result, loads(sent))
    except (RecordError, ValueError) as error:
        return Gone(_words_of(error))


def _words_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]


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
        self._inbox: queue.SimpleQueue[tuple[Handle, Result | Gone]] = queue.SimpleQueue()

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
            with contextlib.suppress(queue.Empty):
                self._receive(*self._inbox.get(timeout=POLL_S))
            for _ in range(self._inbox.qsize()):
                self._receive(*self._inbox.get())
            for key in list(self._handles):
                self._enforce_limit(key)
            on_wait()

    def _receive(self, handle: Handle, message: Result | Gone) -> None:
        key = handle.setup.target.key
        if self._handles.get(key) is not handle:
            # It was ended, and what it was at has been booked.
            return
        if isinstance(message, Gone):
            self._crashed(key, message)
            return
        self.bookings.book(message)
        if message.is_interim:
            return
        if handle.task is not None and message.task_id == handle.task.id:
            handle.task = None
        if message.reason not in (None, Reason.INTERRUPTED, Reason.MISSING_CAPABILITY):
            # A device library may be unusable after an error: begin anew.
            self._drop(key)

    def _crashed(self, key: str, gone: Gone) -> None:
        handle = self._handles[key]
        task = handle.task
        detail = f"what the worker sent cannot be read ({gone.garbage})"
        if not gone.garbage:
            handle.process.join(EXIT_GRACE_S)
            detail = _describe_exit(handle.process.exitcode)
        self._drop(key)
        if task is not None:
            self.bookings.close(task, Reason.CRASHED, detail)

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
            self._handles[key] = Handle(self.context, self.setups[key], self._inbox)
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
