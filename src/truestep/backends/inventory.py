# SPDX-License-Identifier: Apache-2.0
"""What this machine is: its `Node`, and one `Device` for each processor socket.

Accelerators are listed by the backend that computes on them. Here is only what the kernel says
without any vendor library.
"""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Collection, Mapping
from pathlib import Path

from truestep.backends.grants import granted_cpus
from truestep.backends.kernel_files import (
    ETC_ROOT,
    PROC_ROOT,
    SYS_ROOT,
    cpuinfo,
    numbered,
    parse_cpu_list,
    read_int,
    read_text,
)
from truestep.device import Device, Node

_PLACEHOLDERS = frozenset(
    {
        "not specified",
        "not provided",
        "not available",
        "not applicable",
        "to be filled by o.e.m.",
        "filled by oem",
        "oem",
        "none",
        "null",
        "n/a",
        "na",
        "unknown",
        "invalid",
        "default",
        "default string",
        "empty",
        "system serial number",
        "base board serial number",
        "serial number",
        "0123456789",
        "123456789",
        "1234567890",
        "03000200-0400-0500-0006-000700080009",
    }
)
_BOARD_FILES = ("board_serial", "product_serial", "product_uuid")


def this_node(
    *,
    env: Mapping[str, str] | None = None,
    sys_root: Path = SYS_ROOT,
    etc_root: Path = ETC_ROOT,
) -> Node:
    """The machine this process runs on.

    The name is what the scheduler calls it (`SLURMD_NODENAME`), else the host name. The board
    serial is empty where the firmware holds a placeholder or the file needs rights we lack.
    """
    env = os.environ if env is None else env
    return Node(
        name=env.get("SLURMD_NODENAME", "").strip() or socket.gethostname(),
        board_serial=board_serial(sys_root=sys_root),
        machine_id=read_text(etc_root / "machine-id"),
    )


def board_serial(*, sys_root: Path = SYS_ROOT) -> str:
    """The first of board serial, product serial and product UUID that is no placeholder."""
    for name in _BOARD_FILES:
        serial = read_text(sys_root / "class/dmi/id" / name)
        if not is_placeholder(serial):
            return serial
    return ""


def is_placeholder(serial: str) -> bool:
    """Whether a vendor left this serial blank: known phrases, or one character throughout."""
    characters = set(serial.strip()) - set("-._ :")
    return len(characters) < 2 or serial.strip().casefold() in _PLACEHOLDERS


def socket_cpus(
    *, sys_root: Path = SYS_ROOT, proc_root: Path = PROC_ROOT
) -> dict[int, tuple[int, ...]]:
    """Socket number, from 0 in the order of package ids, to its logical processors online.

    Falls back from the kernel's topology to `/proc/cpuinfo`; empty when neither is there.
    """
    packages: dict[int, list[int]] = {}
    for cpu, folder in numbered(sys_root / "devices/system/cpu", "cpu"):
        package = read_int(folder / "topology/physical_package_id")
        if package is not None:
            packages.setdefault(package, []).append(cpu)
    if not packages:
        for cpu, fields in cpuinfo(proc_root).items():
            package_text = fields.get("physical id", "0")
            package = int(package_text) if package_text.isdecimal() else 0
            packages.setdefault(package, []).append(cpu)
    return {
        number: tuple(sorted(packages[package])) for number, package in enumerate(sorted(packages))
    }


def sockets(
    *,
    sys_root: Path = SYS_ROOT,
    proc_root: Path = PROC_ROOT,
    granted: Collection[int] | None = None,
) -> tuple[Device, ...]:
    """One `cpu` device for each socket of which this process may use at least one core.

    The units are the granted logical processors, `core<N>`. Two of them may be threads of one
    physical core and share its arithmetic units: `smt_siblings` says which, and siblings are no
    contrast for one another.

    Args:
        sys_root: Where sysfs is mounted.
        proc_root: Where procfs is mounted.
        granted: Logical processors that may be used; asked of the kernel when None.
    """
    mine = granted_cpus(sys_root=sys_root, proc_root=proc_root) if granted is None else granted
    members = socket_cpus(sys_root=sys_root, proc_root=proc_root) or {0: tuple(sorted(mine))}
    fields = cpuinfo(proc_root)
    board = board_serial(sys_root=sys_root)
    devices = []
    for number, cpus in members.items():
        usable = sorted(set(cpus) & set(mine))
        if not usable:
            continue
        described = fields.get(usable[0], {})
        devices.append(
            Device(
                id=f"cpu:{number}",
                kind="cpu",
                model=_model(described),
                serial=f"{board}/socket{number}" if board else "",
                units=tuple(f"core{cpu}" for cpu in usable),
                firmware=_microcode(described, usable[0], sys_root),
                is_partial=len(usable) < len(cpus),
            )
        )
    return tuple(devices)


def smt_siblings(*, sys_root: Path = SYS_ROOT) -> dict[str, tuple[str, ...]]:
    """Each unit to all units, itself included, that are threads of the same physical core."""
    siblings = {}
    for cpu, folder in numbered(sys_root / "devices/system/cpu", "cpu"):
        listed = read_text(folder / "topology/thread_siblings_list")
        threads = parse_cpu_list(listed) | {cpu}
        siblings[f"core{cpu}"] = tuple(f"core{thread}" for thread in sorted(threads))
    return siblings


def _model(fields: Mapping[str, str]) -> str:
    """The name on the package, or the codes by which an Arm core names itself."""
    if "model name" in fields:
        return fields["model name"]
    codes = [fields[name] for name in ("CPU implementer", "CPU part") if name in fields]
    return " ".join([platform.machine() or "cpu", *codes])


def _microcode(fields: Mapping[str, str], cpu: int, sys_root: Path) -> str:
    """The microcode revision, empty where none is reported."""
    folder = sys_root / f"devices/system/cpu/cpu{cpu}"
    return fields.get("microcode", "") or read_text(folder / "microcode/version")
