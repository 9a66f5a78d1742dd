# SPDX-License-Identifier: Apache-2.0
"""What is put in on purpose: `Fault`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

ANY_SITE = "*"


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
        site: Prefix of the sites that it hits, such as `matmul` or `matmul/bf16`, or `ANY_SITE`.
        rate: Chance that a call is hit, in (0, 1].
        bit: Bit position from the lowest, or None for one drawn anew at each hit.
        index: Flat position of the element, modulo the size, or None for one drawn at each hit.
        factor: Multiplier of `SCALE`.
        device: Address of the only device that has it, or None for all.
        unit: The only unit that has it, or None for all.
        calls: First call of a site that can be hit, and the first that no longer can; None for
            no end.
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
    calls: tuple[int, int | None] = (0, None)
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

    def hits(self, *, device: str, unit: str, site: str, call: int) -> bool:
        """Whether this fault sits at that place and is awake at that call of the site."""
        first, end = self.calls
        at_site = self.site in (ANY_SITE, site) or site.startswith(f"{self.site}/")
        is_awake = call >= first and (end is None or call < end)
        return at_site and is_awake and self.device in (None, device) and self.unit in (None, unit)
