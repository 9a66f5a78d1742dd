# SPDX-License-Identifier: Apache-2.0
"""What a determinism check found of one tensor: `Certificate`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Repeatability(StrEnum):
    """How a tensor may be compared between two runs of one set-up."""

    BITWISE = "bitwise"
    NOISE_FLOOR = "noise_floor"
    UNJUDGED = "unjudged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """How one tensor of one environment may be compared.

    Attributes:
        tensor: Name of the tensor, or site of the operation.
        environment_key: Key of the `Environment` in which it was found.
        repeatability: Bitwise, within `floor`, or not at all.
        floor: Largest difference between healthy runs, in the tensor's unit; only for
            `NOISE_FLOOR`.
        devices: Serials of the devices on which it was learnt.
    """

    tensor: str
    environment_key: str
    repeatability: Repeatability
    floor: float | None = None
    devices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        has_floor = self.floor is not None
        if has_floor != (self.repeatability is Repeatability.NOISE_FLOOR):
            raise ValueError(
                f"a floor belongs to noise_floor and to nothing else, got {self.repeatability!s} "
                f"with floor={self.floor!r}. Leave it out, or change the repeatability."
            )
        if has_floor and len(set(self.devices)) < 2:
            raise ValueError(
                "a noise floor must be learnt on at least two distinct devices, got "
                f"{self.devices!r}. Learn it on a second one, or leave the tensor unjudged."
            )
