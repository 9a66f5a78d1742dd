# SPDX-License-Identifier: Apache-2.0
"""Where the expected bits of a comparison come from: `Reference`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ReferenceKind(StrEnum):
    """The six sources of an expected value, strongest first."""

    EXACT = "exact"
    GOLDEN = "golden"
    PEER = "peer"
    RECOMPUTE = "recompute"
    INVARIANT = "invariant"
    BASELINE = "baseline"

    @property
    def needs_certificate(self) -> bool:
        """Whether a difference means nothing before the set-up was shown to repeat its own bits."""
        return self in (ReferenceKind.GOLDEN, ReferenceKind.PEER, ReferenceKind.RECOMPUTE)

    @property
    def is_enough(self) -> bool:
        """Whether a difference can be a fail without other evidence."""
        return self is not ReferenceKind.BASELINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A kind of reference, and where this one came from.

    Attributes:
        kind: Source of the expected value.
        provenance: How to find or make it again: a formula, a golden id, a peer's identity.
    """

    kind: ReferenceKind
    provenance: str
