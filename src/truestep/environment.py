# SPDX-License-Identifier: Apache-2.0
"""All that may change bits without a fault: `Environment` and its key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Device model, driver, libraries, ISA, threads, kernels and switches, as names and values.

    Two runs may be compared bit for bit only under equal keys; exact arithmetic alone is free of
    that condition.
    """

    entries: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The sha256 of all entries in sorted order, as 64 hexadecimal digits."""
        text = json.dumps(dict(sorted(self.entries.items())), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def difference(self, other: Environment) -> tuple[str, ...]:
        """The sorted names whose values differ, one-sided names included."""
        names = self.entries.keys() | other.entries.keys()
        return tuple(sorted(n for n in names if self.entries.get(n) != other.entries.get(n)))
