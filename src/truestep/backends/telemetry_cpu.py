# SPDX-License-Identifier: Apache-2.0
"""What the kernel reports of a processor socket: heat, clocks, load, memory and machine errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from truestep.backends.inventory import socket_cpus
from truestep.backends.kernel_files import (
    PROC_ROOT,
    SYS_ROOT,
    cpuinfo,
    numbered,
    read_int,
    read_text,
)
from truestep.backends.readings import Readings, reported
from truestep.device import Device

_SENSORS = frozenset({"coretemp", "k10temp", "zenpower", "cpu_thermal", "fam15h_power"})
_ZONES = ("x86_pkg_temp", "cpu")


def read(device: Device, *, sys_root: Path = SYS_ROOT, proc_root: Path = PROC_ROOT) -> Readings:
    """The readings of one socket. Clocks are of the granted cores, all else of the whole socket.

    `memory_corrected_count` and `memory_uncorrected_count` (EDAC) and `load` are of the machine:
    the kernel does not divide them by socket.
    """
    number = _socket_number(device)
    members = socket_cpus(sys_root=sys_root, proc_root=proc_root)
    cpus = members.get(number, ())
    granted = [int(unit.removeprefix("core")) for unit in device.units]
    values: dict[str, object] = {
        "temperature_celsius": _temperature_celsius(number, max(1, len(members)), sys_root),
        "machine_check_count": _machine_checks(cpus, proc_root),
        "throttle_count": _throttles(cpus, sys_root),
        "memory_corrected_count": _edac("ce_count", sys_root),
        "memory_uncorrected_count": _edac("ue_count", sys_root),
        "load": read_text(proc_root / "loadavg").partition(" ")[0],
        "microcode": device.firmware,
    }
    clocks = _clocks_mhz(granted, sys_root, proc_root)
    if clocks:
        values["clock_mhz"] = sum(clocks) / len(clocks)
        values["clock_min_mhz"], values["clock_max_mhz"] = min(clocks), max(clocks)
    return reported(values)


def _socket_number(device: Device) -> int:
    number = device.id.rpartition(":")[2]
    return int(number) if number.isdecimal() else 0


def _temperature_celsius(number: int, num_sockets: int, sys_root: Path) -> float | None:
    """The hottest sensor that is known to belong to this socket."""
    sensors = [
        folder
        for _, folder in numbered(sys_root / "class/hwmon", "hwmon")
        if read_text(folder / "name") in _SENSORS
    ]
    labelled = [folder for folder in sensors if _package(folder) == number]
    if not labelled and len(sensors) == num_sockets:
        labelled = sensors[number : number + 1]
    inputs = [path for folder in labelled for path in folder.glob("temp*_input")]
    if not inputs and num_sockets == 1:
        inputs = [
            folder / "temp"
            for _, folder in numbered(sys_root / "class/thermal", "thermal_zone")
            if read_text(folder / "type").startswith(_ZONES)
        ]
    # A sensor that is switched off reads as absolute zero, and must not hide the others.
    found = (reported({"part_celsius": value / 1000}) for value in _ints(inputs))
    return max((float(part["part_celsius"]) for part in found if part), default=None)


def _package(folder: Path) -> int | None:
    """The socket that a sensor names in its labels."""
    for path in folder.glob("temp*_label"):
        if match := re.fullmatch(r"Package id (\d+)", read_text(path)):
            return int(match[1])
    return None


def _clocks_mhz(cpus: Sequence[int], sys_root: Path, proc_root: Path) -> list[float]:
    folder = sys_root / "devices/system/cpu"
    files = [folder / f"cpu{cpu}/cpufreq/scaling_cur_freq" for cpu in cpus]
    clocks = [value / 1000 for value in _ints(files)]
    if clocks:
        return clocks
    fields = cpuinfo(proc_root)
    texts = [fields.get(cpu, {}).get("cpu MHz", "") for cpu in cpus]
    return [float(kept["clock_mhz"]) for text in texts if (kept := reported({"clock_mhz": text}))]


def _machine_checks(cpus: Sequence[int], proc_root: Path) -> int | None:
    """Machine check exceptions that these processors took since the machine started."""
    header, *rows = read_text(proc_root / "interrupts").splitlines() or [""]
    columns = [name.removeprefix("CPU") for name in header.split()]
    for row in rows:
        name, _, counts = row.partition(":")
        if name.strip() == "MCE":
            pairs = zip(columns, counts.split(), strict=False)
            taken = {int(cpu): int(n) for cpu, n in pairs if cpu.isdecimal() and n.isdecimal()}
            return sum(taken.get(cpu, 0) for cpu in cpus)
    return None


def _throttles(cpus: Sequence[int], sys_root: Path) -> int | None:
    folders = [sys_root / f"devices/system/cpu/cpu{cpu}/thermal_throttle" for cpu in cpus]
    cores = list(_ints(folder / "core_throttle_count" for folder in folders))
    packages = list(_ints(folder / "package_throttle_count" for folder in folders))
    # Every processor of a socket repeats the count of the socket.
    return sum(cores) + max(packages, default=0) if cores or packages else None


def _edac(name: str, sys_root: Path) -> int | None:
    controllers = numbered(sys_root / "devices/system/edac/mc", "mc")
    counts = list(_ints(folder / name for _, folder in controllers))
    return sum(counts) if counts else None


def _ints(paths: Iterable[Path]) -> Iterable[int]:
    return (value for path in paths if (value := read_int(path)) is not None)
