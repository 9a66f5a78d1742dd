# SPDX-License-Identifier: Apache-2.0
"""`DeviceLock`: at most one test on a device, across all users of a host."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import socket
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from truestep.errors import ConfigError

_NUM_TRIES = 16
_STICKY_FOR_ALL = 0o1777


def lock_directories() -> tuple[Path, ...]:
    """Where locks are kept: the folder for the host, and the one any user can make."""
    host = hashlib.sha256(socket.gethostname().encode("utf-8", "surrogateescape")).hexdigest()
    return Path("/run/lock/truestep"), Path(tempfile.gettempdir()) / f"truestep-{host[:12]}"


class DeviceLock:
    """Holds a device for this process, without waiting.

    `with DeviceLock(identity) as is_held:` gives whether it was free. The kernel lets go when
    the process ends in any way, so a lock is never stale. A child made by a plain fork shares it.

    The lock is held in every folder that can be used: root may be able to make the first where
    others were not, and they must still see one another. Containers with folders of their own
    cannot; there `grants.busy_processes` is what remains.

    Guarantees: no symlink is followed, no file that we did not make is changed, and no folder is
    used in which anyone could swap files. Whoever made a sticky folder still can; then two tests
    may meet on a device, and nothing worse.

    Args:
        identity: What names the device for life, `Device.identity_in(node)`.
        directories: Folders to keep locks in; `lock_directories()` when None.
    """

    def __init__(self, identity: str, *, directories: Sequence[Path] | None = None) -> None:
        slug = re.sub(r"[^A-Za-z0-9]+", "-", identity)[:40].strip("-")
        digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        self._name = f"{slug}-{digest}.lock"
        self._directories = tuple(lock_directories() if directories is None else directories)
        self._held: list[int] = []

    @property
    def is_held(self) -> bool:
        """Whether this object holds the device."""
        return bool(self._held)

    def acquire(self) -> bool:
        """Take the device if it is free, and say whether it is now held.

        Raises:
            ConfigError: no folder for locks can be used.
        """
        if self._held:
            return True
        num_usable = 0
        for directory in self._directories:
            folder = _open_directory(directory)
            if folder is None:
                continue
            try:
                taken = _take(folder, self._name)
            except OSError:
                continue  # Someone put what is no plain file there; the next folder may do.
            finally:
                os.close(folder)
            num_usable += 1
            if taken is None:
                self.release()
                return False
            self._held.append(taken)
        if not num_usable:
            listed = ", ".join(str(directory) for directory in self._directories)
            raise ConfigError(
                f"A folder for locks must be ours or sticky, and hold plain files. None of "
                f"{listed} is. Remove what another user left there, or set TMPDIR."
            )
        return True

    def release(self) -> None:
        """Let go. Files stay, because removing one lets two processes lock different files."""
        while self._held:
            descriptor = self._held.pop()
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def _open_directory(path: Path) -> int | None:
    """A descriptor of a folder that may be trusted, made for all users if it was missing."""
    with contextlib.suppress(OSError):
        path.mkdir(mode=0o700)
        path.chmod(_STICKY_FOR_ALL)
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    facts = os.fstat(folder)
    is_ours = facts.st_uid in {0, os.geteuid()}
    is_open_to_others = bool(facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    is_sticky = bool(facts.st_mode & stat.S_ISVTX)
    if is_sticky or (is_ours and not is_open_to_others):
        return folder
    os.close(folder)
    return None


def _take(folder: int, name: str) -> int | None:
    """A locked descriptor of the file, or None when another process has it.

    Raises:
        OSError: what lies there is no plain file with one name, or it cannot be opened.
    """
    for _ in range(_NUM_TRIES):
        descriptor = _open_file(folder, name)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if _is_still_there(folder, name, descriptor):
            return descriptor
        os.close(descriptor)
    raise OSError("a lock file must stay in its place; it was replaced each time it was opened")


def _open_file(folder: int, name: str) -> int:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    for _ in range(_NUM_TRIES):
        # Opened first and made second: Linux refuses O_CREAT on the file of another user in a
        # sticky folder (fs.protected_regular).
        with contextlib.suppress(FileNotFoundError):
            return _checked(os.open(name, flags, dir_fd=folder))
        with contextlib.suppress(FileExistsError):
            made = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder)
            os.fchmod(made, 0o666)
            return made
    raise OSError("a lock file must stay in its place; it came and went each time")


def _checked(descriptor: int) -> int:
    facts = os.fstat(descriptor)
    if stat.S_ISREG(facts.st_mode) and facts.st_nlink <= 1:
        return descriptor
    os.close(descriptor)
    raise OSError("a lock file must be a plain file with one name; another was found")


def _is_still_there(folder: int, name: str, descriptor: int) -> bool:
    """Whether the name still leads to the file that was locked."""
    try:
        there = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return os.path.samestat(there, os.fstat(descriptor))
