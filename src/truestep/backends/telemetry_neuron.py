# SPDX-License-Identifier: Apache-2.0
"""What the AWS Neuron driver reports of an accelerator, by sysfs or a `neuron-monitor` report.

Not yet run on a Neuron device.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from truestep.backends.kernel_files import SYS_ROOT, numbered, read_text
from truestep.backends.readings import Readings, reported, reported_number
from truestep.device import Device


def read(device: Device, *, sys_root: Path = SYS_ROOT) -> Readings:
    """The readings of one device, found by its serial number; empty when the driver has none.

    Not yet run on a Neuron device.
    """
    for _, folder in numbered(sys_root / "devices/virtual/neuron_device", "neuron"):
        serial = read_text(folder / "info/serial_number")
        if device.serial and serial.casefold() == device.serial.casefold():
            hardware = folder / "stats/hardware"
            names = ("mem_ecc_uncorrected", "sram_ecc_uncorrected")
            counts = [_count(read_text(hardware / name)) for name in names]
            return reported({"ecc_uncorrected_count": _total(counts)})
    return {}


def readings_from_monitor(report: object, *, index: int) -> Readings:
    """The readings of one device in a report of `neuron-monitor`, already parsed from JSON.

    Its counts are of one period only, so they carry other names than the running counters.
    """
    devices = _inside(report, "system_data", "neuron_hw_counters", "neuron_devices")
    for entry in devices if isinstance(devices, list) else ():
        if isinstance(entry, Mapping) and entry.get("neuron_device_index") == index:
            readings: dict[str, object] = {}
            for kind in ("corrected", "uncorrected"):
                names = (f"mem_ecc_{kind}", f"sram_ecc_{kind}")
                counts = [_count(entry.get(name)) for name in names]
                readings[f"ecc_{kind}_in_period_count"] = _total(counts)
            return reported(readings)
    return {}


def _inside(value: object, *names: str) -> object:
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _count(value: object) -> float | None:
    return reported_number("ecc_count", value)


def _total(counts: list[float | None]) -> float | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
