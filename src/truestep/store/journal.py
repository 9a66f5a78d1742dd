# SPDX-License-Identifier: Apache-2.0
r"""The journal: records, one a line, only appended.

An entry is `\n<checksum> <JSON>\n`: a line feed, the first 16 hexadecimal digits of the sha256 of
the JSON bytes, a space, the record as strict JSON, a line feed. The first line feed starts a fresh
line whatever an interrupted writer left, and with one at both ends a damaged byte spoils one
record at most. Blank lines mean nothing. The checksum finds accidents; it does not stop a forger.

`cut -d' ' -f2- journal.jsonl` gives plain JSON Lines.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from truestep.errors import RecordError
from truestep.record import Record
from truestep.store.durable import (
    make_folder,
    open_regular,
    refused_as_record_error,
    sync_folder,
    write_whole,
)
from truestep.store.schema import dumps, loads, record_from

LINE_LIMIT_BYTES = 64 * 2**20
MOST_DAMAGE_LISTED = 1000

_LINE = re.compile(rb"([0-9a-f]{16}) (.*)", re.DOTALL)
_CHUNK_BYTES = 2**20
_LOCK_POLL_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A line that is not used as it stands, or that contradicts another.

    Attributes:
        line_no: Number of the line, from 1.
        offset: Position of its first byte in the file.
        why: What is wrong with it.
    """

    line_no: int
    offset: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """All that a journal holds.

    Attributes:
        records: The sound records, in order, each once.
        damaged: The first `MOST_DAMAGE_LISTED` damaged lines.
        num_damaged: How many there are.
        torn: The last line was not finished: a writer was interrupted, or is at work.
    """

    records: tuple[Record, ...] = ()
    damaged: tuple[Damage, ...] = ()
    num_damaged: int = 0
    torn: bool = False


class Journal:
    """An append-only file of records, shared by processes of one machine.

    Args:
        path: The file. It is made when the first record is appended.
        lock_timeout_s: How long to wait for another writer.
        line_limit_bytes: Longest line that is written or read.

    Guarantees:
        Bytes once written are never changed or removed. A record whose `append` returned survives
        the death of any process, and damage to any other line.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        lock_timeout_s: float = 30.0,
        line_limit_bytes: int = LINE_LIMIT_BYTES,
    ) -> None:
        self.path = Path(path)
        self._lock_timeout_s = lock_timeout_s
        self._line_limit_bytes = line_limit_bytes

    def append(self, record: Record) -> None:
        """Add a record and wait until it is on disk.

        Raises:
            RecordError: It could not be kept: the disk is full, the path is no regular file,
                another writer holds the lock. Earlier records are intact.
        """
        line = _line_of(record)
        if len(line) > self._line_limit_bytes:
            raise RecordError(
                f"a record must fit in {self._line_limit_bytes} bytes, got {len(line)}. "
                "Move arrays into evidence files."
            )
        advice = (
            "This record was not kept; earlier ones are intact. Free the disk and append again."
        )
        with refused_as_record_error(self.path, advice):
            make_folder(self.path.parent)
            with open_regular(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as descriptor:
                self._lock(descriptor)
                is_first = os.fstat(descriptor).st_size == 0
                write_whole(descriptor, b"\n" + line + b"\n")
                os.fsync(descriptor)
                if is_first:
                    sync_folder(self.path.parent)

    def read(self) -> Iterator[Record]:
        """The sound records in order, each once. A missing file holds none.

        Raises:
            RecordError: The path is no regular file or cannot be read.
        """
        return (found for found in self._found() if isinstance(found, Record))

    def scan(self) -> Scan:
        """The sound records, and what is wrong with the other lines.

        Raises:
            RecordError: The path is no regular file or cannot be read.
        """
        records: list[Record] = []
        damaged: list[Damage] = []
        num_damaged, torn = 0, False
        for found in self._found():
            if isinstance(found, Record):
                records.append(found)
            elif isinstance(found, Damage):
                num_damaged += 1
                if num_damaged <= MOST_DAMAGE_LISTED:
                    damaged.append(found)
            else:
                torn = True
        return Scan(
            records=tuple(records),
            damaged=tuple(damaged),
            num_damaged=num_damaged,
            torn=torn,
        )

    def _lock(self, descriptor: int) -> None:
        """Take the lock, which the closing of the descriptor gives back."""
        deadline = time.monotonic() + self._lock_timeout_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise RecordError(
                        f"{self.path} must be free within {self._lock_timeout_s} s, got a writer "
                        "that holds it. Look for a stopped process that has it open."
                    ) from None
                time.sleep(_LOCK_POLL_S)
            else:
                return

    def _found(self) -> Iterator[Record | Damage | _Torn]:
        """What each line that is not blank holds; copies of a record are left out."""
        seen: dict[str, _Seen] = {}
        for line in self._lines():
            try:
                checksum, record = _parse(line)
            except RecordError as error:
                if line.is_whole:
                    yield Damage(line_no=line.number, offset=line.offset, why=str(error))
            else:
                first = seen.get(record.id)
                if first is None:
                    seen[record.id] = _Seen(checksum, line.number, line.offset)
                    yield record
                elif first.checksum != checksum:
                    yield from _conflict(record.id, first, line)
            if not line.is_whole:
                yield _Torn()

    def _lines(self) -> Iterator[_Line]:
        if not self.path.exists() and not self.path.is_symlink():
            return
        with (
            refused_as_record_error(self.path, "Nothing was changed. Check its permissions."),
            open_regular(self.path, os.O_RDONLY) as descriptor,
            os.fdopen(os.dup(descriptor), "rb") as file,
        ):
            yield from _lines_of(file, self._line_limit_bytes)


@dataclass(frozen=True, slots=True)
class _Torn:
    """The file ends within a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    number: int
    offset: int
    content: bytes | None
    is_whole: bool


@dataclass(slots=True)
class _Seen:
    checksum: bytes
    number: int
    offset: int
    is_reported: bool = False


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:16].encode()


def _line_of(record: Record) -> bytes:
    body = dumps(record).encode()
    return _checksum(body) + b" " + body


def _lines_of(file: BinaryIO, limit: int) -> Iterator[_Line]:
    """Lines that are not blank. One above the limit has no content and is never held whole."""
    number, offset = 0, 0
    while raw := file.readline(limit + 1):
        number, start = number + 1, offset
        offset += len(raw)
        is_long = len(raw) > limit and not raw.endswith(b"\n")
        while is_long and not raw.endswith(b"\n") and (raw := file.readline(_CHUNK_BYTES)):
            offset += len(raw)
        is_whole = raw.endswith(b"\n")
        content = raw.removesuffix(b"\n").removesuffix(b"\r")
        if is_long:
            yield _Line(number=number, offset=start, content=None, is_whole=is_whole)
        elif content.strip():
            yield _Line(number=number, offset=start, content=content, is_whole=is_whole)


def _parse(line: _Line) -> tuple[bytes, Record]:
    if line.content is None:
        raise RecordError("a line must keep the limit, got a longer one. It was left out.")
    match = _LINE.fullmatch(line.content)
    if match is None:
        raise RecordError(
            "a line must begin with 16 hexadecimal digits and a space, got other bytes. "
            "It was left out."
        )
    checksum, body = match.groups()
    if _checksum(body) != checksum:
        raise RecordError("a line must match its checksum, got other bytes. It was left out.")
    return checksum, record_from(loads(body))


def _conflict(record_id: str, first: _Seen, line: _Line) -> Iterator[Damage]:
    """Both lines that give one id to two contents; the first of them once."""
    must = f"id {record_id!r} must have one content, got another on line"
    if not first.is_reported:
        first.is_reported = True
        why = f"{must} {line.number}. This one is kept."
        yield Damage(line_no=first.number, offset=first.offset, why=why)
    why = f"{must} {first.number}. This one was left out."
    yield Damage(line_no=line.number, offset=line.offset, why=why)
