# SPDX-License-Identifier: Apache-2.0
"""`Sampler`: readings of all devices at 1 Hz, taken by a process that may hang or die.

A call into a driver can wait for ever, and a process stuck in a driver cannot be ended. So the
calls are made in one child, and this process never waits for it longer than it said.

The two talk in lines of JSON over a socket that neither end waits on: nothing that the child
sends is unpickled, and a line that was cut off by its death is left out.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import time
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from types import TracebackType
from typing import Any

from truestep.backends import child
from truestep.backends.sampler_child import READ_BYTES, serve, wait
from truestep.context import Sample
from truestep.device import Device

READER = "truestep.backends.telemetry:read"

_MAX_SAMPLES = 8192


class Sampler:
    """Samples devices in a child process until `close`.

    With `spawn` and `forkserver` the child loads only this package, and no torch; as always with
    multiprocessing, it also loads the main module again, so a script guards what it runs by
    `if __name__ == "__main__"`. Not for several threads at once.

    Guarantees: no method waits longer than its limit, nor raises when the child hangs or dies;
    then what is asked for is not reported. A child that cannot be ended does not keep this
    process from ending.

    Args:
        devices: What to sample. A reader that hangs on one leaves the others without samples.
        context: How to start the child, such as `multiprocessing.get_context("spawn")`.
        reader: `module:function` that takes a device and gives its readings.
        period_s: Seconds from one round of samples to the next.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        *,
        context: BaseContext,
        reader: str = READER,
        period_s: float = 1.0,
    ) -> None:
        ours, theirs = context.Pipe(duplex=True)
        self._connection: Connection | None = ours
        self._unread = b""
        self._samples: dict[str, deque[tuple[float, Sample]]] = {
            device.id: deque(maxlen=_MAX_SAMPLES) for device in devices
        }
        try:
            self._process: Any = child.start(
                context,
                serve,
                (theirs, tuple(devices), reader, period_s),
                name="truestep-sampler",
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        os.set_blocking(ours.fileno(), False)
        # Handlers run last in, first out: this one comes before the one of multiprocessing, which
        # would wait for the child for ever.
        atexit.register(self.close)

    def now(self, device_id: str, limit_s: float = 1.0) -> Sample | None:
        """A sample whose readings were asked for after this call, or None within the limit."""
        asked_s = time.monotonic()
        end_s = asked_s + limit_s
        self._ask()
        while True:
            self.drain()
            kept = self._samples.get(device_id)
            if kept and kept[-1][0] >= asked_s:
                return kept[-1][1]
            left_s = end_s - time.monotonic()
            if self._connection is None or kept is None or left_s <= 0:
                return None
            wait(self._connection, left_s)

    def drain(self) -> None:
        """Take in what the child has sent, without waiting."""
        while self._connection is not None:
            try:
                chunk = os.read(self._connection.fileno(), READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                chunk = b""
            if not chunk:
                self._hang_up()
                return
            *lines, self._unread = (self._unread + chunk).split(b"\n")
            for line in lines:
                self._keep(line)

    def window(self, device_id: str, start_s: float, end_s: float) -> tuple[Sample, ...]:
        """The samples of a device from `start_s` to `end_s`, seconds since the epoch, in order."""
        self.drain()
        kept = self._samples.get(device_id, ())
        return tuple(sample for _, sample in kept if start_s <= sample.time_s <= end_s)

    @property
    def is_running(self) -> bool:
        """Whether the child was still there when it was last heard."""
        return self._connection is not None

    def close(self) -> None:
        """End the child, and leave it behind if it cannot be ended. May be called twice."""
        atexit.unregister(self.close)
        self._hang_up()
        if self._process is not None:
            process, self._process = self._process, None
            child.end(process)

    def __enter__(self) -> Sampler:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):
                os.write(self._connection.fileno(), b"?")

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _keep(self, line: bytes) -> None:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            said = json.loads(line)
            sample = Sample(time_s=float(said["time_s"]), readings=dict(said["readings"]))
            self._samples[said["id"]].append((float(said["monotonic_s"]), sample))
