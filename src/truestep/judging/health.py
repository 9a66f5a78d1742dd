# SPDX-License-Identifier: Apache-2.0
"""What the driver already knows of a device, before anything is computed on it.

Source: health agents that did not look at row remapping or at the recovery action have called
devices healthy that went on spoiling jobs. An overall word such as `Healthy` is never looked at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from truestep.context import Sample
from truestep.reason import Reason

_NO_ACTION = frozenset(
    {"", "0", "-", "none", "no", "n/a", "blank", "not supported", "not reported", "unknown"}
)
_YES = frozenset({"1", "yes", "true"})
_FIRST_BLANK = 0x7FFFFFF0


def health(sample: Sample | None) -> Reason | None:
    """Why a device is not to be used, or None when nothing that is reported speaks against it.

    None is neither a failure nor a pass: where nothing is reported, nothing is known.

    The first of these that holds is given, because each calls for more than the next:
    1. remapping of a memory row failed: the device must be replaced;
    2. the driver asks for a recovery action, whatever else is reported;
    3. a row remap is pending: a reset suffices.
    """
    readings: Mapping[str, float | str] = {} if sample is None else sample.readings
    if _is_set(readings.get("rows_remap_failure")):
        return Reason.ROW_REMAP_FAILED
    if _asks_for_action(readings.get("recovery_action")):
        return Reason.RECOVERY_REQUIRED
    if _is_set(readings.get("rows_remap_pending")):
        return Reason.RESET_NEEDED
    return None


def _is_set(value: float | str | None) -> bool:
    """Whether a flag is on. Blanks of a vendor that came through are not."""
    if isinstance(value, str):
        return value.strip().casefold() in _YES
    return value is not None and math.isfinite(value) and 0 < value < _FIRST_BLANK


def _asks_for_action(value: float | str | None) -> bool:
    if isinstance(value, str):
        return value.strip().strip("[]<>").replace("_", " ").casefold() not in _NO_ACTION
    return _is_set(value)
