# SPDX-License-Identifier: Apache-2.0
"""Files that outlive a crash: opened without following links, written whole, synchronised."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from truestep.errors import RecordError

OWNER_ONLY = 0o600


@contextmanager
def refused_as_record_error(path: Path, advice: str) -> Iterator[None]:
    """Turn an error of the operating system, such as a full disk, into a `RecordError`."""
    try:
        yield
    except OSError as error:
        raise RecordError(f"{path} must be usable, got: {error.strerror}. {advice}") from error


@contextmanager
def open_regular(path: Path, flags: int) -> Iterator[int]:
    """A descriptor of a regular file at `path`, closed at the end. Made 0600 where it is created.

    Raises:
        RecordError: Something else stands there: a symbolic link, a pipe, a device, a folder.
        OSError: The file cannot be opened.
    """
    # Without O_NONBLOCK, opening a pipe waits for its other end.
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    if path.is_symlink():
        raise _not_regular(path)
    descriptor = os.open(path, flags, OWNER_ONLY)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _not_regular(path)
        yield descriptor
    finally:
        os.close(descriptor)


def _not_regular(path: Path) -> RecordError:
    return RecordError(
        f"{path} must be a regular file, got a link, folder, pipe or device. Name another path."
    )


def write_whole(descriptor: int, data: bytes) -> None:
    """Write all of `data`: one call, and more only where the system took less."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def sync_folder(folder: Path) -> None:
    """Make the names within a folder outlive a crash."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, for the owner only, so that they outlive a crash."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_folder(folder.parent)


def write_atomically(path: Path, data: bytes) -> None:
    """Put `data` at `path`, mode 0600, so that a reader finds all of it or what was there before.

    Raises:
        OSError: It cannot be written. Nothing is left behind.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open_regular(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
            write_whole(descriptor, data)
            os.fsync(descriptor)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def read_regular(path: Path, *, limit_bytes: int) -> bytes:
    """The bytes of a regular file.

    Raises:
        RecordError: It is not a regular file, or larger than the limit.
        OSError: It cannot be read.
    """
    with open_regular(path, os.O_RDONLY) as descriptor, os.fdopen(os.dup(descriptor), "rb") as file:
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise RecordError(
            f"{path} must be at most {limit_bytes} bytes long, got more. Raise the limit if it is "
            "yours."
        )
    return data
