# SPDX-License-Identifier: Apache-2.0
"""The history of a fleet: every record kept, and what follows from them, in a database."""

from truestep.store.history.entry import (
    Entry,
    Folded,
    Placement,
    Refused,
    Run,
    RunStatus,
)
from truestep.store.history.history import History
from truestep.store.history.names import NameMap

__all__ = [
    "Entry",
    "Folded",
    "History",
    "NameMap",
    "Placement",
    "Refused",
    "Run",
    "RunStatus",
]
