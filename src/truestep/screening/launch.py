# SPDX-License-Identifier: Apache-2.0
"""How worker processes are started: from a fork server that has loaded the library once."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing import forkserver
from multiprocessing.context import BaseContext

from truestep.backends.numpy_backend import THREAD_SWITCHES
from truestep.backends.open import MODULES


def start_server(backend: str) -> BaseContext:
    """A context whose processes are forked from a server that has loaded `backend`'s library.

    The server initialises no device. Its processes compute with one thread: a core is screened by
    the worker that is pinned to it, and all cores are loaded by all workers together.
    """
    if backend == "jax":
        # The library runs threads of its own from the start, and a forked copy would lack them.
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["truestep.screening.worker", MODULES[backend][0]])
    before = {name: os.environ.get(name) for name in THREAD_SWITCHES}
    os.environ.update(dict.fromkeys(THREAD_SWITCHES, "1"))
    try:
        forkserver.ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return context
