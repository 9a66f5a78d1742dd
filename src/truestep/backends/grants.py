# SPDX-License-Identifier: Apache-2.0
"""What this process was granted, so that nothing else is used.

Source: rule 12 of the design, we do no harm. A machine is often shared, and a limit that is
overlooked either takes from a neighbour or ends this process.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truestep.backends.cgroups import levels
from truestep.backends.kernel_files import (
    PROC_ROOT,
    SYS_ROOT,
    parse_cpu_list,
    read_int,
    read_text,
)

_UNLIMITED_BYTES = 1 << 60
_CPUSET_FILES = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
_VISIBILITY_FLAGS = (
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "SLURM_STEP_GPUS",
    "SLURM_JOB_GPUS",
)
_NONE_GRANTED = frozenset({"", "-1", "none", "void", "nodevfiles"})


def granted_cpus(
    *,
    affinity: Collection[int] | None = None,
    sys_root: Path = SYS_ROOT,
    proc_root: Path = PROC_ROOT,
) -> frozenset[int]:
    """The logical processors this process may run on: its affinity within its cpuset.

    Args:
        affinity: Processors the kernel would run this process on; asked when None.
        sys_root: Where sysfs is mounted.
        proc_root: Where procfs is mounted.
    """
    granted = frozenset(os.sched_getaffinity(0) if affinity is None else affinity)
    for folder in levels("cpuset", sys_root=sys_root, proc_root=proc_root):
        for name in _CPUSET_FILES:
            listed = parse_cpu_list(read_text(folder / name))
            # A set that shares nothing with the affinity is not ours: the kernel keeps them equal.
            granted = (granted & listed) or granted
    return granted


def cpu_quota(*, sys_root: Path = SYS_ROOT, proc_root: Path = PROC_ROOT) -> float | None:
    """Processors' worth of time per second that the tightest group allows; None is no limit."""
    quotas = []
    for folder in levels("cpu", sys_root=sys_root, proc_root=proc_root):
        quota, _, period = read_text(folder / "cpu.max").partition(" ")
        if not quota:
            quota = read_text(folder / "cpu.cfs_quota_us")
            period = read_text(folder / "cpu.cfs_period_us")
        if quota.isdecimal() and period.strip().isdecimal() and int(period) > 0:
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory_limit_bytes(*, sys_root: Path = SYS_ROOT, proc_root: Path = PROC_ROOT) -> int | None:
    """Bytes of memory that may still be taken here; None when nothing is reported.

    The smallest of what each group around this process leaves and what the machine has available.
    Cached file pages that the kernel gives back on demand do not count as used.
    """
    left = [_machine_available_bytes(proc_root)]
    for folder in levels("memory", sys_root=sys_root, proc_root=proc_root):
        left.append(_left_in_bytes(folder, "memory.max", "memory.current", "inactive_file"))
        left.append(
            _left_in_bytes(
                folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            )
        )
    return min((value for value in left if value is not None), default=None)


def _left_in_bytes(folder: Path, limit_file: str, usage_file: str, cache_row: str) -> int | None:
    limit, used = read_int(folder / limit_file), read_int(folder / usage_file)
    if limit is None or limit >= _UNLIMITED_BYTES:
        return None
    cached = _row(read_text(folder / "memory.stat"), cache_row) or 0
    return max(0, limit - max(0, (used or 0) - cached))


def _machine_available_bytes(proc_root: Path) -> int | None:
    kib = _row(read_text(proc_root / "meminfo"), "MemAvailable:")
    return None if kib is None else kib * 1024


def _row(text: str, name: str) -> int | None:
    """The number in the row of a kernel table that starts with this name."""
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == name and words[1].isdecimal():
            return int(words[1])
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleAccelerators:
    """Which accelerators the environment leaves visible.

    Attributes:
        granted: Indexes or UUIDs in the order of the flag; None is no restriction, and an empty
            tuple is none at all.
        flags: The flags that are set, as they are.
    """

    granted: tuple[str, ...] | None
    flags: Mapping[str, str] = field(default_factory=dict)


def visible_accelerators(env: Mapping[str, str], *, kind: str = "cuda") -> VisibleAccelerators:
    """What the library of this kind will see, else what the scheduler granted.

    The library's own flags win: a scheduler that confines devices renumbers them, and its global
    indexes then name other devices. On `rocm`, HIP indexes count within the ROCR list.

    Args:
        env: Environment variables.
        kind: `cuda` or `rocm`.
    """
    flags = {name: env[name] for name in _VISIBILITY_FLAGS if name in env}
    listed = {name: _entries(text) for name, text in flags.items()}
    own_flag = listed.get("CUDA_VISIBLE_DEVICES")
    granted = _hip_within_rocr(listed) if kind == "rocm" else own_flag
    for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"):
        granted = listed.get(name) if granted is None else granted
    return VisibleAccelerators(granted=granted, flags=flags)


def _entries(text: str) -> tuple[str, ...]:
    """The entries of a flag. The libraries stop at the first that names no device."""
    entries: list[str] = []
    for part in text.split(","):
        entry = part.strip()
        if entry.casefold() in _NONE_GRANTED:
            break
        entries.append(entry)
    return tuple(entries)


def _hip_within_rocr(listed: Mapping[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    outer = listed.get("ROCR_VISIBLE_DEVICES")
    inner = listed.get("HIP_VISIBLE_DEVICES", listed.get("CUDA_VISIBLE_DEVICES"))
    if outer is None or inner is None:
        return outer if inner is None else inner
    indexes = [int(entry) for entry in inner if entry.isdecimal()]
    return tuple(outer[index] for index in indexes if index < len(outer))


def busy_processes(
    handle: Any, *, vendor: Any, own_pid: int | None = None, proc_root: Path = PROC_ROOT
) -> tuple[int, ...] | None:
    """Processes of others that use an accelerator, or None when the driver does not say.

    This process, those that started it and those it started are not others. Not yet run on a GPU.

    Args:
        handle: The accelerator, as `vendor` knows it.
        vendor: The NVML module, `pynvml`.
        own_pid: The process whose tree is left out; this one when None.
        proc_root: Where procfs is mounted.
    """
    try:
        pids = {int(entry.pid) for entry in vendor.nvmlDeviceGetComputeRunningProcesses(handle)}
    except Exception:  # noqa: BLE001 - a driver may raise anything; then it is not reported
        return None
    own = os.getpid() if own_pid is None else own_pid
    ancestors = set(_line_of_descent(own, proc_root))
    others = (pid for pid in pids - ancestors if own not in _line_of_descent(pid, proc_root))
    return tuple(sorted(others))


def _line_of_descent(pid: int, proc_root: Path) -> Iterator[int]:
    """A process, its parent, and so on upwards."""
    seen: set[int] = set()
    while pid > 0 and pid not in seen:
        seen.add(pid)
        yield pid
        # The name in parentheses may itself hold blanks and parentheses.
        _, _, after_name = read_text(proc_root / str(pid) / "stat").rpartition(")")
        words = after_name.split()
        pid = int(words[1]) if len(words) > 1 and words[1].isdecimal() else 0
