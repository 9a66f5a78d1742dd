# SPDX-License-Identifier: Apache-2.0
"""Child processes that may be stuck in a driver: started, ended, or given up."""

from __future__ import annotations

import multiprocessing.process
import os
import threading
from collections.abc import Callable
from multiprocessing.context import BaseContext
from typing import Any

REST_S = 0.5
TERM_S = 1.0
KILL_S = 3.0


def start(
    context: BaseContext, target: Callable[..., None], args: tuple[Any, ...], *, name: str
) -> Any:
    """A running child of this context.

    It never keeps this process from ending, and ends when this process does, whatever it is at.
    """
    # Every context has a Process, though the type of the base class does not say so.
    process = context.Process(  # type: ignore[attr-defined]
        target=_follow, args=(target, args), name=name, daemon=True
    )
    process.start()
    return process


def _follow(target: Callable[..., None], args: tuple[Any, ...]) -> None:
    """Run the target; a thread ends this process should the parent be gone before it."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    target(*args)


def _end_with_parent() -> None:
    parent = multiprocessing.process.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


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
