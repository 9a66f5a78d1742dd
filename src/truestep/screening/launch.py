# SPDX-License-Identifier: Apache-2.0
"""How worker processes are started: from a fork server that has loaded the library once."""

from __future__ import annotations

import multiprocessing
from multiprocessing import forkserver
from multiprocessing.context import BaseContext

from truestep.backends.open import MODULES
from truestep.backends.threads import one_thread


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
    with one_thread():
        forkserver.ensure_running()
    return context
