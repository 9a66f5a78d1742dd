# SPDX-License-Identifier: Apache-2.0
"""The control groups that hold this process, in either version of the kernel interface."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from truestep.backends.kernel_files import PROC_ROOT, SYS_ROOT, read_text


def levels(
    controller: str, *, sys_root: Path = SYS_ROOT, proc_root: Path = PROC_ROOT
) -> tuple[Path, ...]:
    """The folders that may limit this process, innermost first, version 2 before version 1.

    Inside a container the path in `/proc/self/cgroup` may name a folder of the host that is not
    mounted here. Such folders are left out, and the mount point itself, which then is the
    container's own group, stays.
    """
    unified: list[Path] = []
    legacy: list[Path] = []
    mount = sys_root / "fs/cgroup"
    for line in read_text(proc_root / "self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            hybrid = mount / "unified"
            unified += _upwards(hybrid if hybrid.is_dir() else mount, path)
        elif controller in controllers.split(","):
            joined = mount / controllers
            legacy += _upwards(joined if joined.is_dir() else mount / controller, path)
    return (*unified, *legacy)


def _upwards(mount: Path, path: str) -> list[Path]:
    """The folder of a group and of all groups around it, as far as they can be seen."""
    parts = PurePosixPath(path).parts[1:]
    if ".." in parts:
        # A group outside of our namespace cannot be seen; only the mount point is ours.
        parts = ()
    folders = [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
    return [folder for folder in folders if folder.is_dir()]
