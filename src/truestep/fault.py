# SPDX-License-Identifier: Apache-2.0
"""What is put in on purpose: `Fault`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    """What a fault does to the elements that it hits."""

    FLIP = "flip"
    STUCK = "stuck"
    NULLIFY = "nullify"
    SCALE = "scale"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An injected corruption of one site, drawn from a seed.

    Attributes:
        kind: Flip a bit, hold it at one, set the value to zero, or multiply it by `factor`.
        site: Prefix of the sites that it hits, such as `matmul` or `matmul/bf16`.
        rate: Chance that a call is hit, in (0, 1].
        bit: Bit position from the lowest, or None for one drawn anew at each hit.
        index: Flat position of the element, modulo the size, or None for one drawn at each hit.
        factor: Multiplier of `SCALE`.
        device: Address of the only device that has it, or None for all.
        unit: The only unit that has it, or None for all.
        seed: Seed of every draw.
    """

    kind: FaultKind
    site: str
    rate: float = 1.0
    bit: int | None = None
    index: int | None = None
    factor: float = 2.0
    device: str | None = None
    unit: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.rate <= 1.0:
            raise ValueError(
                f"rate must lie in (0, 1], got {self.rate!r}. Use 0.005 for one call in 200."
            )
        if self.bit is not None and not 0 <= self.bit < 64:
            raise ValueError(f"bit must lie in 0..63, got {self.bit!r}. 0 is the lowest bit.")
        if not self.site:
            raise ValueError("site must name an operation, got ''. Use matmul, or matmul/fp32.")

    def hits(self, *, device: str, unit: str, site: str) -> bool:
        """Whether this fault sits at that place."""
        at_site = site == self.site or site.startswith(f"{self.site}/")
        return at_site and self.device in (None, device) and self.unit in (None, unit)
