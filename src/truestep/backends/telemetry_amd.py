# SPDX-License-Identifier: Apache-2.0
"""What the AMD driver reports of a GPU, by amdsmi.

Not yet run on a GPU: held to the documented calls by a fake of the library.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Any

from truestep.backends.readings import Readings, reported, reported_text
from truestep.device import Device


@functools.cache
def load_vendor() -> Any | None:
    """The amdsmi module, started once in this process; None where there is none."""
    try:
        vendor = importlib.import_module("amdsmi")
        vendor.amdsmi_init()
    except (Exception, SystemExit):  # noqa: BLE001 - without its library the module may also exit
        return None
    return vendor


def read(device: Device, *, vendor: Any = None) -> Readings:
    """The readings of one GPU, found by its UUID; empty when the driver does not know it.

    Not yet run on a GPU.
    """
    smi = load_vendor() if vendor is None else vendor
    handle = None if smi is None else handle_of(device, vendor=smi)
    if handle is None:
        return {}
    power = _table(smi, "power_info", handle)
    ecc = _table(smi, "gpu_total_ecc_count", handle)
    activity = _table(smi, "gpu_activity", handle)
    bad_pages = _asked(smi, "gpu_bad_page_info", handle)
    return reported(
        {
            "temperature_celsius": _temperature_celsius(smi, handle),
            "power_watts": _first(power, "current_socket_power", "average_socket_power"),
            "clock_mhz": _clock_mhz(smi, handle, "GFX"),
            "memory_clock_mhz": _clock_mhz(smi, handle, "MEM"),
            "ecc_corrected_count": ecc.get("correctable_count"),
            "ecc_uncorrected_count": ecc.get("uncorrectable_count"),
            "bad_pages_count": len(bad_pages) if isinstance(bad_pages, list) else None,
            "utilisation_percent": activity.get("gfx_activity"),
            "vbios": _table(smi, "gpu_vbios_info", handle).get("version"),
            "throttle_reasons": _throttle_reasons(smi, handle),
        }
    )


def handle_of(device: Device, *, vendor: Any) -> Any | None:
    """The GPU as amdsmi knows it, or None. Indexes are not used: visibility flags renumber them."""
    wanted = _plain(device.serial)
    for handle in _asked(vendor, "processor_handles") or ():
        uuid = _asked(vendor, "gpu_device_uuid", handle)
        if wanted and uuid and _plain(str(uuid)) == wanted:
            return handle
    return None


def _plain(uuid: str) -> str:
    return uuid.casefold().removeprefix("gpu-").replace("-", "")


def _temperature_celsius(smi: Any, handle: Any) -> Any | None:
    kinds = getattr(smi, "AmdSmiTemperatureType", None)
    current = getattr(getattr(smi, "AmdSmiTemperatureMetric", None), "CURRENT", None)
    return _asked(smi, "temp_metric", handle, getattr(kinds, "HOTSPOT", None), current)


def _clock_mhz(smi: Any, handle: Any, name: str) -> object:
    kind = getattr(getattr(smi, "AmdSmiClkType", None), name, None)
    return _table(smi, "clock_info", handle, kind).get("clk")


def _throttle_reasons(smi: Any, handle: Any) -> str | None:
    """What now holds the clocks down, `none` when each flag that is reported is off."""
    violations = _table(smi, "violation_status", handle)
    flags = {
        name.removeprefix("active_").replace("_", " "): value
        for name, value in violations.items()
        if name.startswith("active_") and isinstance(value, bool)
    }
    if not flags:
        return None
    return ", ".join(sorted(name for name, is_on in flags.items() if is_on)) or "none"


def _first(table: Mapping[str, object], *names: str) -> object:
    """The first entry that is reported: which of two exists depends on the generation."""
    values = (table.get(name) for name in names)
    return next((value for value in values if reported_text(value) not in {None, "0"}), None)


def _table(smi: Any, name: str, *arguments: Any) -> Mapping[str, object]:
    answer = _asked(smi, name, *arguments)
    return answer if isinstance(answer, dict) else {}


def _asked(smi: Any, name: str, *arguments: Any) -> Any | None:
    call = getattr(smi, f"amdsmi_get_{name}", None)
    if call is None:
        return None
    try:
        return call(*arguments)
    except Exception:  # noqa: BLE001 - each query may be unsupported, forbidden, or break
        return None
