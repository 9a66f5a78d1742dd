# SPDX-License-Identifier: Apache-2.0
"""What counts as a reading: blanks, sentinels and impossible values are absent, never numbers.

Source: DCGM marks a field that it could not read with values from 0x7ffffff0 (32 bits),
0x7ffffffffffffff0 (64 bits) and 2^47 (double) on, and with texts such as `<<<NOT_SUPPORTED>>>`;
NVML and amdsmi use all ones, of 16 bits at the least: the limits of
the units leave out 65535.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from truestep.context import decode_reversibly

Readings = dict[str, float | str]

TEXT_READINGS = frozenset(
    {"device_name", "microcode", "mig_mode", "recovery_action", "throttle_reasons", "uuid", "vbios"}
)
FLAG_READINGS = frozenset({"rows_remap_failure", "rows_remap_pending"})

_LIMITS = {
    "_celsius": (-100.0, 150.0),
    "_percent": (0.0, 100.0),
    "_watts": (0.0, 2e4),
    "_mhz": (0.0, 2e4),
}
_NO_LIMIT = (0.0, float(1 << 62))
_BLANK_TEXTS = frozenset(
    {
        "",
        "-",
        "blank",
        "null",
        "nan",
        "inf",
        "+inf",
        "-inf",
        "n/a",
        "na",
        "not reported",
        "not supported",
        "not available",
        "no data",
        "unknown",
        "unknown error",
        "insufficient permissions",
        "requested functionality has been deprecated",
        "gpu is lost",
        "not_found",
        "not_supported",
        "not_permissioned",
    }
)
_NUMBER = re.compile(
    r"([-+]?(?:0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE][-+]?\d+)?))(?:\s*%|\s+[A-Za-z]+)?\Z"
)
_FLAG_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


def is_blank(value: float) -> bool:
    """Whether a number is one of the values by which vendors say that there is none."""
    if not math.isfinite(value) or abs(value) >= 1 << 62:
        return True
    return (
        0x7FFFFFF0 <= value <= 0x7FFFFFFF
        or value == 0xFFFFFFFF
        or 1 << 47 <= value <= (1 << 47) + 15
    )


def reported_text(value: object) -> str | None:
    """The text of a value, with bytes kept reversibly, or None when it says nothing."""
    text = decode_reversibly(value) if isinstance(value, bytes) else str(value)
    text = text.strip()
    bare = text.strip("[]<>").strip().casefold()
    if value is None or bare in _BLANK_TEXTS:
        return None
    number = _number_in(text)
    return None if number is not None and is_blank(number) else text


def reported_number(name: str, value: object) -> float | None:
    """The number of a value within what its unit allows, or None when it says nothing.

    Args:
        name: The reading, whose suffix is the unit.
        value: A number, or text such as `250.00 W`, `0x1f` or, for a flag, `Yes`.
    """
    if isinstance(value, bytes | str):
        text = reported_text(value) or ""
        number = _FLAG_WORDS.get(text.casefold()) if name in FLAG_READINGS else None
        number = _number_in(text) if number is None else number
    elif isinstance(value, int | float):
        number = _as_float(value)
    else:
        return None
    if number is None or is_blank(number):
        return None
    limits = (limit for suffix, limit in _LIMITS.items() if name.endswith(suffix))
    low, high = next(limits, _NO_LIMIT)
    if not low <= number <= high:
        return None
    return float(number > 0) if name in FLAG_READINGS else number


def reported(values: Mapping[str, object]) -> Readings:
    """The values that are readings, by name.

    Guarantees: every number is finite, no blank of a vendor, and within what its unit allows;
    every text says something. What is left out was not reported.
    """
    readings: Readings = {}
    for name, value in values.items():
        kept = reported_text(value) if name in TEXT_READINGS else reported_number(name, value)
        if kept is not None:
            readings[name] = kept
    return readings


def _number_in(text: str) -> float | None:
    found = _NUMBER.match(text)
    if found is None:
        return None
    digits = found[1]
    return _as_float(int(digits, 16)) if "x" in digits.casefold() else float(digits)


def _as_float(value: float) -> float:
    """A float that stays in range, because an int may be too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf
