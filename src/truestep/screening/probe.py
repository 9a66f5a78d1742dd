# SPDX-License-Identifier: Apache-2.0
"""What devices are here, found out by a process that may hang.

Asking a library for its devices can wait for ever on a broken one, so the question is put in a
child with a time limit, and this process never loads the library.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext

from truestep.backends import child
from truestep.backends.protocol import Backend
from truestep.backends.telemetry_nvidia import users
from truestep.device import Device
from truestep.errors import BackendError
from truestep.screening.tasks import Found, Setup
from truestep.screening.worker import open_for

LIMIT_S = 120.0

Need = tuple[str, str]


def probe(context: BaseContext, setup: Setup, needs: Iterable[Need]) -> tuple[Found, ...]:
    """The devices that the backend of `setup` shows, and which needs each one meets.

    Raises:
        BackendError: The child crashed, raised, or did not answer within `LIMIT_S`.
    """
    ours, theirs = context.Pipe(duplex=False)
    process = child.start(context, _answer, (theirs, setup, tuple(needs)), name="truestep-probe")
    theirs.close()
    try:
        if not ours.poll(LIMIT_S):
            raise BackendError(
                f"{setup.backend} must list its devices within {LIMIT_S:.0f} s, and did not. "
                "The driver may be stuck: look at the kernel log."
            )
        answer = ours.recv()
    except EOFError:
        process.join(5)
        raise BackendError(
            f"{setup.backend} must list its devices, and its process ended with exit code "
            f"{process.exitcode}. Look at the kernel log."
        ) from None
    finally:
        ours.close()
        child.end(process)
    if isinstance(answer, str):
        raise BackendError(f"{setup.backend} could not list its devices. It raised:\n{answer}")
    found: tuple[Found, ...] = answer
    return found


def _answer(connection: Connection, setup: Setup, needs: tuple[Need, ...]) -> None:
    try:
        backend = open_for(setup)
        connection.send(tuple(_found(backend, device, needs) for device in backend.devices()))
    except Exception:  # noqa: BLE001  the parent says what the library raised
        connection.send(traceback.format_exc(limit=-4))


def _found(backend: Backend, device: Device, needs: tuple[Need, ...]) -> Found:
    return Found(
        device=device,
        environment=backend.environment(device),
        supported=frozenset(n for n in needs if backend.supports(*n, device)),
        free_memory_bytes=backend.free_memory_bytes(device),
        busy_with=users(device) if device.kind == "cuda" else (),
    )
