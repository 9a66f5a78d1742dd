# SPDX-License-Identifier: Apache-2.0
"""How many threads the libraries take, which they read once, when they are loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

THREAD_SWITCHES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def one_thread() -> Iterator[None]:
    """What is loaded or started within the block takes one thread; the environment is restored."""
    before = {name: os.environ.get(name) for name in THREAD_SWITCHES}
    os.environ.update(dict.fromkeys(THREAD_SWITCHES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
