# SPDX-License-Identifier: Apache-2.0
"""What the NVIDIA driver reports of a GPU, by NVML and the kernel log.

Not yet run on a GPU: held to the documented calls by a fake of the library.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from truestep.backends.grants import busy_processes
from truestep.backends.kernel_log import parse_dmesg, pci_address, read_kernel_log
from truestep.backends.readings import Readings, reported, reported_number, reported_text
from truestep.device import Device

RECOVERY_ACTIONS = (
    "none",
    "gpu reset",
    "node reboot",
    "drain p2p",
    "drain and reset",
    "recover imex domain",
    "bus reset",
    "system reboot",
)
"""What the driver asks for, by its number (nvmlDeviceGpuRecoveryAction_t, DCGM field 1523)."""

THROTTLE_REASONS = (
    "gpu idle",
    "applications clocks setting",
    "sw power cap",
    "hw slowdown",
    "sync boost",
    "sw thermal slowdown",
    "hw thermal slowdown",
    "hw power brake slowdown",
    "display clock setting",
)
"""Why clocks are lowered, by the bit of the mask (nvmlClocksEventReasons, DCGM field 112)."""

_TEMPERATURE_OF_GPU, _CLOCK_SM, _CLOCK_MEMORY = 0, 1, 2
_CORRECTED, _UNCORRECTED = 0, 1
_VOLATILE, _AGGREGATE = 0, 1
_FIELD_OF_MEMORY_TEMPERATURE, _FIELD_OF_RECOVERY_ACTION = 82, 230


@functools.cache
def load_vendor() -> Any | None:
    """The NVML module, started once in this process; None where there is none."""
    try:
        vendor = importlib.import_module("pynvml")
        vendor.nvmlInit()
    except Exception:  # noqa: BLE001 - a missing or broken driver raises what it likes
        return None
    return vendor


def read(
    device: Device,
    *,
    vendor: Any = None,
    kernel_log: Callable[[], bytes | None] = read_kernel_log,
) -> Readings:
    """The readings of one GPU, found by its UUID; empty when the driver does not know it.

    `ecc_*_count` are since the driver was loaded, `ecc_*_lifetime_count` since the GPU was made.
    The readings of a MIG slice are those of its GPU. Not yet run on a GPU.

    Args:
        device: A device whose serial is the UUID.
        vendor: The NVML module; loaded when None.
        kernel_log: Gives the kernel log, or None when it may not be read.
    """
    nvml = load_vendor() if vendor is None else vendor
    handle = None if nvml is None else handle_of(device, vendor=nvml)
    if handle is None:
        return {}
    return reported(
        {
            **_conditions(nvml, handle),
            **_memory_errors(nvml, handle),
            **_xids(nvml, handle, kernel_log),
            "recovery_action": recovery_action_text(
                _field(nvml, handle, _FIELD_OF_RECOVERY_ACTION)
            ),
        }
    )


def handle_of(device: Device, *, vendor: Any) -> Any | None:
    """The GPU as NVML knows it, or None. Indexes are not used: visibility flags renumber them."""
    if not device.serial:
        return None
    is_slice = device.serial.startswith("MIG-")
    uuid = device.serial if device.serial.startswith(("GPU-", "MIG-")) else f"GPU-{device.serial}"
    handle = _asked(vendor, "HandleByUUID", uuid)
    if is_slice and handle is not None:
        return _asked(vendor, "DeviceHandleFromMigDeviceHandle", handle)
    return handle


def users(device: Device, *, vendor: Any = None) -> tuple[int, ...]:
    """Processes of others that use the GPU; none where the driver does not say."""
    nvml = load_vendor() if vendor is None else vendor
    handle = None if nvml is None else handle_of(device, vendor=nvml)
    if handle is None:
        return ()
    return busy_processes(handle, vendor=nvml) or ()


def name_of(handle: Any, *, vendor: Any) -> str:
    """What the vendor calls the GPU, its bytes kept reversibly; empty when not reported."""
    return reported_text(_raw_text(vendor, "Name", handle)) or ""


def recovery_action_text(number: object) -> str | None:
    """The action the driver asks for, in words, or None when it was not reported."""
    value = reported_number("recovery_action_number", number)
    if value is None:
        return None
    known = value.is_integer() and value < len(RECOVERY_ACTIONS)
    return RECOVERY_ACTIONS[int(value)] if known else f"action {value:g}"


def throttle_reasons_text(mask: object) -> str | None:
    """The reasons in a bit mask, in words and `none` for no bit, or None when not reported."""
    value = reported_number("throttle_mask", mask)
    if value is None:
        return None
    bits = [bit for bit in range(63) if int(value) >> bit & 1]
    known = len(THROTTLE_REASONS)
    words = (THROTTLE_REASONS[bit] if bit < known else f"bit {bit}" for bit in bits)
    return ", ".join(words) or "none"


def _conditions(nvml: Any, handle: Any) -> Mapping[str, object]:
    power_milliwatts = reported_number("power", _asked(nvml, "PowerUsage", handle))
    utilisation = _asked(nvml, "UtilizationRates", handle)
    mask = _asked(nvml, "CurrentClocksEventReasons", handle)
    if mask is None:
        mask = _asked(nvml, "CurrentClocksThrottleReasons", handle)
    mig = _asked(nvml, "MigMode", handle)
    return {
        "temperature_celsius": _asked(nvml, "Temperature", handle, _TEMPERATURE_OF_GPU),
        "memory_temperature_celsius": _field(nvml, handle, _FIELD_OF_MEMORY_TEMPERATURE),
        "power_watts": None if power_milliwatts is None else power_milliwatts / 1000,
        "clock_mhz": _asked(nvml, "ClockInfo", handle, _CLOCK_SM),
        "memory_clock_mhz": _asked(nvml, "ClockInfo", handle, _CLOCK_MEMORY),
        "throttle_reasons": throttle_reasons_text(mask),
        "utilisation_percent": getattr(utilisation, "gpu", None),
        "memory_utilisation_percent": getattr(utilisation, "memory", None),
        "vbios": _raw_text(nvml, "VbiosVersion", handle),
        "mig_mode": None if not mig else {0: "off", 1: "on"}.get(mig[0]),
    }


def _memory_errors(nvml: Any, handle: Any) -> Mapping[str, object]:
    values: dict[str, object] = {
        "ecc_corrected_count": _asked(nvml, "TotalEccErrors", handle, _CORRECTED, _VOLATILE),
        "ecc_uncorrected_count": _asked(nvml, "TotalEccErrors", handle, _UNCORRECTED, _VOLATILE),
        "ecc_corrected_lifetime_count": _asked(
            nvml, "TotalEccErrors", handle, _CORRECTED, _AGGREGATE
        ),
        "ecc_uncorrected_lifetime_count": _asked(
            nvml, "TotalEccErrors", handle, _UNCORRECTED, _AGGREGATE
        ),
    }
    rows = _asked(nvml, "RemappedRows", handle)
    if rows is not None and len(rows) == 4:
        names = ("rows_remapped_corrected", "rows_remapped_uncorrected")
        values |= dict(zip(names, rows[:2], strict=True))
        values["rows_remapped"] = total_rows(rows[0], rows[1])
        values["rows_remap_pending"], values["rows_remap_failure"] = rows[2], rows[3]
    return values


def total_rows(corrected: object, uncorrected: object) -> float | None:
    """All rows remapped, or None unless both counts were reported."""
    counts = [reported_number("rows_remapped", count) for count in (corrected, uncorrected)]
    return None if None in counts else sum(count for count in counts if count is not None)


def _xids(nvml: Any, handle: Any, kernel_log: Callable[[], bytes | None]) -> Mapping[str, object]:
    place = _asked(nvml, "PciInfo", handle)
    log = kernel_log()
    if place is None or log is None:
        return {}
    address = pci_address(place.domain, place.bus, place.device)
    errors = [error for error in parse_dmesg(log) if error.pci == address]
    return {"xid_count": len(errors), "last_xid": errors[-1].xid if errors else None}


def _field(nvml: Any, handle: Any, number: int) -> int | None:
    """An unsigned field of the driver, each with a status of its own, or None."""
    values = _asked(nvml, "FieldValues", handle, [number])
    return values[0].value.uiVal if values and values[0].nvmlReturn == 0 else None


def _raw_text(nvml: Any, name: str, handle: Any) -> Any | None:
    """A text as bytes: the library decodes it as UTF-8, and fails on some real device names."""
    call = getattr(nvml, f"nvmlDeviceGet{name}", None)
    return _called(getattr(call, "__wrapped__", call), handle)


def _asked(nvml: Any, name: str, *arguments: Any) -> Any | None:
    return _called(getattr(nvml, f"nvmlDeviceGet{name}", None), *arguments)


def _called(call: Callable[..., Any] | None, *arguments: Any) -> Any | None:
    """What the driver answers, or None when it has no answer."""
    if call is None:
        return None
    try:
        return call(*arguments)
    except Exception:  # noqa: BLE001 - each query may be unsupported, forbidden, or break
        return None
