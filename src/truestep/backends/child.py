# SPDX-License-Identifier: Apache-2.0
"""Child processes that may be stuck in a driver: started, ended, or given up."""

from __future__ import annotations

import multiprocessing.process
from collections.abc import Callable
from multiprocessing.context import BaseContext
from typing import Any

REST_S = 0.5
TERM_S = 1.0
KILL_S = 3.0


def start(
    context: BaseContext, target: Callable[..., None], args: tuple[Any, ...], *, name: str
) -> Any:
    """A running child of this context. It never keeps this process from ending."""
    # Every context has a Process, though the type of the base class does not say so.
    process = context.Process(target=target, args=args, name=name, daemon=True)  # type: ignore[attr-defined]
    process.start()
    return process


def end(process: Any) -> bool:
    """End a child whose pipe was closed: let it go, ask it, kill it. False if it lives on.

    One that cannot be killed is left behind, and this process can still end.
    """
    for act, grace_s in ((None, REST_S), (process.terminate, TERM_S), (process.kill, KILL_S)):
        if act is not None:
            act()
        process.join(grace_s)
        if process.exitcode is not None:
            process.close()
            return True
    # multiprocessing would join it for ever when this process ends, and has no public way to be
    # told not to.
    multiprocessing.process._children.discard(process)  # type: ignore[attr-defined]  # noqa: SLF001
    return False
