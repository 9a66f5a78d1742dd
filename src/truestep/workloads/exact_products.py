# SPDX-License-Identifier: Apache-2.0
"""Products whose accumulators are kept, and the division between them.

All values between products are integers held in float32, below 2^24.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from truestep.numerics.exact import PRECISIONS
from truestep.workloads.exact_sizes import AMPLITUDE

Array = Any
Arrays = Mapping[str, Array]

POWERS = tuple(math.ldexp(1.0, -shift) for shift in range(25))
"""2^-shift. A table, because libraries compute powers of two inexactly."""


class Products(Protocol):
    """What the model needs of a backend."""

    @property
    def xp(self) -> Any:
        """Python array API namespace."""

    def matmul(self, a: Array, b: Array, *, precision: str, out: str, site: str) -> Array:
        """As `Backend.matmul`."""

    def elementwise(self, op: str, *arrays: Array, site: str) -> Array:
        """As `Backend.elementwise`."""


class Mode(NamedTuple):
    """How products are computed, and the dtype in which their accumulators are shown."""

    precision: str
    out: str

    @property
    def value_class(self) -> str:
        """`accumulator`, or `bf16` where each is rounded once. Each class has its own golden."""
        return "bf16" if self.out == "bfloat16" else "accumulator"


def site_of(operation: str, mode: Mode) -> str:
    """The site of an operation: products by direction, updates of masters by themselves.

    One site for each direction, so that faults can be told apart and counts stay large.
    """
    direction = operation.partition("/")[0]
    return "update/float32" if direction == "update" else f"matmul/{mode.precision}/{direction}"


def requantise(xp: Any, x: Array, shift: int, amplitude: int = AMPLITUDE) -> Array:
    """`x / 2^shift` to the nearest integer, halves up, clamped to +-`amplitude`.

    Guarantees: exact in float32 for integers with |x| + 2^shift / 2 below 2^24.
    """
    return xp.clip(xp.floor(x * POWERS[shift] + 0.5 * (shift > 0)), -amplitude, amplitude)


def positive_zero(xp: Any, x: Array) -> Array:
    """-0 as +0, because libraries differ in the sign of a zero sum; every other bit as it is.

    By bits and not by value: XLA on a CPU takes a subnormal for zero, and that is damage.
    """
    bits = x.view(getattr(xp, f"int{8 * x.dtype.itemsize}"))
    negative_zero = -(1 << (8 * x.dtype.itemsize - 1))
    return xp.where(bits == negative_zero, xp.zeros_like(bits), bits).view(x.dtype)


@dataclass(slots=True)
class Recorder:
    """Computes products, and keeps every raw accumulator under its name, in order."""

    backend: Products
    mode: Mode
    accumulators: dict[str, Array] = field(default_factory=dict)

    def product(self, a: Array, b: Array, *, name: str) -> Array:
        """`a @ b` in float32; the accumulator as the device showed it is kept."""
        xp = self.backend.xp
        operand = PRECISIONS[self.mode.precision].operand
        if operand != "float32":
            a, b = xp.astype(a, getattr(xp, operand)), xp.astype(b, getattr(xp, operand))
        raw = self.backend.matmul(
            a,
            b,
            precision=self.mode.precision,
            out=self.mode.out,
            site=site_of(name, self.mode),
        )
        wide = xp.astype(raw, xp.float32)
        shown = raw if self.mode.value_class == "bf16" else wide
        self.accumulators[name] = positive_zero(xp, shown)
        return wide
