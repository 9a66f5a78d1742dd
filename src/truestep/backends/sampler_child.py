# SPDX-License-Identifier: Apache-2.0
"""The child of a `Sampler`: reads all devices each period, and whenever it is asked."""

from __future__ import annotations

import importlib
import json
import multiprocessing.resource_tracker
import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

from truestep.device import Device

READ_BYTES = 1 << 16

_MAX_UNSENT_LINES = 65536
_LOOK_AGAIN_S = 0.05

Reader = Callable[[Device], Mapping[str, float | str]]


def serve(connection: Connection, devices: Sequence[Device], reader: str, period_s: float) -> None:
    """What the child does: a round of samples each period and whenever asked, until hung up on."""
    # An interrupt from the keyboard is for the parent to act on; it hangs up when it is done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _let_go_of_output()
    os.set_blocking(connection.fileno(), False)
    unsent = _Unsent(connection)
    read = _load(reader)
    next_s = time.monotonic()
    while True:
        for device in devices:
            unsent.put(_line(device, read))
        next_s = max(next_s + period_s, time.monotonic())
        if not _rest(connection, unsent, next_s):
            return


def _let_go_of_output() -> None:
    """Give up the streams of the parent: whoever reads them would wait for a child left behind."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)
    # The tracker of multiprocessing has the streams too, and ends when nobody holds its pipe. It
    # has no public way to be let go of; without this attribute, only that last case is not met.
    tracker = getattr(multiprocessing.resource_tracker, "_resource_tracker", None)
    descriptor = getattr(tracker, "_fd", None)
    if tracker is not None and descriptor is not None:
        tracker._fd = None  # noqa: SLF001 - as above
        os.close(descriptor)


def _load(reader: str) -> Reader:
    module, _, name = reader.partition(":")
    loaded: Reader = getattr(importlib.import_module(module), name)
    return loaded


def _line(device: Device, read: Reader) -> bytes:
    said: dict[str, Any] = {
        "id": device.id,
        "monotonic_s": time.monotonic(),
        "time_s": time.time(),
    }
    try:
        said["readings"] = dict(read(device))
    except Exception:  # noqa: BLE001 - a reader that breaks has nothing to report, and goes on
        said["readings"] = {}
    try:
        return json.dumps(said, allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError):
        return json.dumps({**said, "readings": {}}).encode() + b"\n"


def _rest(connection: Connection, unsent: _Unsent, until_s: float) -> bool:
    """Wait for the next round or a question, and say whether to go on."""
    while True:
        if not unsent.flush():
            return False
        left_s = until_s - time.monotonic()
        # While lines wait to be sent, look again soon: the parent may have made room.
        if not wait(connection, min(left_s, _LOOK_AGAIN_S) if unsent else left_s):
            if time.monotonic() >= until_s:
                return True
            continue
        try:
            return bool(os.read(connection.fileno(), READ_BYTES))
        except BlockingIOError:
            continue
        except OSError:
            return False


class _Unsent:
    """Lines that the parent has not yet taken; the oldest go when there are too many."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lines: deque[bytes] = deque(maxlen=_MAX_UNSENT_LINES)
        self._begun = b""

    def __bool__(self) -> bool:
        return bool(self._begun or self._lines)

    def put(self, line: bytes) -> None:
        self._lines.append(line)
        self.flush()

    def flush(self) -> bool:
        """Send what the parent has room for, and say whether it is still there."""
        while self:
            # A line that was begun is finished first, even when its place in the queue is gone.
            self._begun = self._begun or self._lines.popleft()
            try:
                sent = os.write(self._connection.fileno(), self._begun)
            except BlockingIOError:
                return True
            except OSError:
                return False
            self._begun = self._begun[sent:]
        return True


def wait(connection: Connection, limit_s: float) -> bool:
    """Wait until something can be read, and say whether it can."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(max(0.0, limit_s) * 1000))
