# SPDX-License-Identifier: Apache-2.0
"""The conditions of a run: `Sample` and `Context`.

A reading that cannot be had is absent from `Sample.readings`, and shown as `not reported`. It is
never a number, never a failure and never a pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NOT_REPORTED = "not reported"

COUNTERS_OF_LOST_DATA = (
    "ecc_uncorrected_count",
    "xid_count",
    "machine_check_count",
    "memory_uncorrected_count",
)
"""Counters whose rise within the window of a miscompare makes it hardware-reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a device reported at one moment.

    Attributes:
        time_s: Seconds since the epoch. For people; it never decides an order.
        readings: Name, with its unit, to a number or text: `temperature_celsius`, `power_watts`,
            `clock_mhz`, `throttle_reasons`, `ecc_uncorrected_count`, `rows_remap_failure`, ...
    """

    time_s: float
    readings: Mapping[str, float | str] = field(default_factory=dict)

    def shown(self, name: str) -> str:
        """The reading as text for people, or `not reported`."""
        value = self.readings.get(name)
        if value is None:
            return NOT_REPORTED
        return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Samples before, during (1 Hz) and after one test."""

    before: Sample | None = None
    during: tuple[Sample, ...] = ()
    after: Sample | None = None

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Those that were taken, in order of time."""
        return tuple(s for s in (self.before, *self.during, self.after) if s is not None)

    def risen(self) -> tuple[str, ...]:
        """The counters of lost data that rose from the first to the last sample that has them."""
        rises = []
        for name in COUNTERS_OF_LOST_DATA:
            counts = [v for s in self.samples if isinstance(v := s.readings.get(name), int | float)]
            if counts and counts[-1] > counts[0]:
                rises.append(name)
        return tuple(rises)


def decode_reversibly(raw: bytes) -> str:
    r"""Text of bytes that may not be UTF-8, such as a device name or a kernel log line.

    Bytes that are no text come out as `\xNN`, and a backslash as `\x5c`, so that nothing is lost
    and no two words join. `encode_reversibly` is the inverse.
    """
    return raw.replace(b"\\", b"\\x5c").decode("utf-8", "backslashreplace")


def encode_reversibly(text: str) -> bytes:
    """The bytes from which `decode_reversibly` made this text."""
    head, *rest = text.encode("utf-8").split(b"\\x")
    return head + b"".join(bytes([int(part[:2], 16)]) + part[2:] for part in rest)
