# SPDX-License-Identifier: Apache-2.0
"""What was seen: `Observation`, its `Party` list and its `Miscompare`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from truestep.reference import Reference


class Role(StrEnum):
    """What a party did in a comparison."""

    SUBJECT = "subject"
    REFERENCE = "reference"
    SENDER = "sender"
    RECEIVER = "receiver"
    INPUT = "input"


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """One side of a comparison. Being named is no accusation.

    Attributes:
        device: Address of the device in this run; of an input, the host that holds it.
        unit: Unit of the device, such as `core3`, or name of the input. Empty for the whole device.
        role: What it did.
    """

    device: str
    unit: str = ""
    role: Role = Role.SUBJECT

    def __str__(self) -> str:
        return f"{self.device}/{self.unit}" if self.unit else self.device


class Spread(StrEnum):
    """How the differing positions lie in a tensor."""

    SINGLE = "single"
    RUN = "run"
    ROW = "row"
    COLUMN = "column"
    TILE = "tile"
    STRIDE = "stride"
    WHOLE = "whole"
    SCATTERED = "scattered"


class Change(StrEnum):
    """What was done to the differing values."""

    NULLIFIED = "nullified"
    SIGN = "sign"
    LOW_MANTISSA = "low_mantissa"
    MANTISSA = "mantissa"
    EXPONENT = "exponent"
    NON_FINITE = "non_finite"
    INTEGER = "integer"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Miscompare:
    """How `actual` differs from `expected`, enough to recognise the unit behind it.

    Attributes:
        dtype: Name of the element type, such as `bfloat16`.
        shape: Shape of both tensors.
        count: Number of differing elements, at least one.
        first: Index of the first difference in row-major order.
        box: Smallest box (start, stop) per axis that holds every difference.
        spread: How the positions lie.
        change: What was done to the values.
        xor_mask: Bits that differ in any element, or-ed over all of them.
        xor_common: Bits that differ in every differing element.
        positions: The first flat positions, at most 64.
        actual, expected: Values at `first`, as hexadecimal bits.
        max_ulp: Largest distance in representable values. None where a value is not finite.
        max_relative: Largest |actual - expected| / |expected|. None where undefined throughout.
    """

    dtype: str
    shape: tuple[int, ...]
    count: int
    first: tuple[int, ...]
    box: tuple[tuple[int, int], ...]
    spread: Spread
    change: Change
    xor_mask: int
    xor_common: int
    positions: tuple[int, ...]
    actual: str
    expected: str
    max_ulp: int | None = None
    max_relative: float | None = None

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(
                f"count must be at least 1, got {self.count}. Equal tensors have no Miscompare: "
                "use None."
            )

    @property
    def bits(self) -> tuple[int, ...]:
        """Positions of the differing bits, lowest first."""
        return tuple(i for i in range(self.xor_mask.bit_length()) if self.xor_mask >> i & 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One reading, or the comparisons of one site under one reference, counted.

    Attributes:
        name: Id of the test or detector, or name of the reading.
        site: Operation and precision, such as `matmul/bf16`.
        value_class: Class of operands, such as `accumulator_exact`.
        value: A reading's value, or the number of miscompares.
        unit: Unit of `value`.
        parties: Everyone who took part. Only judging turns parties into a suspect.
        reference: Where the expected value came from.
        num_comparisons: Comparisons made, each of one result as a whole.
        seed: Seed of the round; of the first miscompare where there is one.
        step: Step or round number. Order is by this, never by wall time.
        miscompare: The first difference, or None.
        conditions: What was varied on purpose (threads, clock, load, library): the contrasts.
        coverage: Which shapes, value ranges and units were covered.
        run_id: Run to which this belongs. Without one it is attributed to nobody.
    """

    name: str
    reference: Reference
    parties: tuple[Party, ...]
    site: str = ""
    value_class: str = ""
    value: float = 0.0
    unit: str = "miscompares"
    num_comparisons: int = 0
    seed: int | None = None
    step: int | None = None
    miscompare: Miscompare | None = None
    conditions: Mapping[str, str] = field(default_factory=dict)
    coverage: Mapping[str, str] = field(default_factory=dict)
    run_id: str = ""

    def __post_init__(self) -> None:
        if self.miscompare is not None and (self.num_comparisons < 1 or self.value < 1):
            raise ValueError(
                "an observation with a miscompare must count it, got "
                f"num_comparisons={self.num_comparisons}, value={self.value}. "
                "Count the comparison before it is reported."
            )

    @property
    def is_miscompare(self) -> bool:
        """Whether an actual value differed from its reference."""
        return self.miscompare is not None
