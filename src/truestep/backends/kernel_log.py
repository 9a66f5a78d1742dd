# SPDX-License-Identifier: Apache-2.0
"""The Xid errors in a kernel log, whatever other bytes it holds."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from truestep.context import decode_reversibly

KERNEL_LOG = Path("/dev/kmsg")

_XID = re.compile(
    rb"NVRM: Xid \((?:PCI:)?([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})[^)]*\): (\d{1,9})"
)
_LONGEST_RECORD_BYTES = 1 << 16
_MAX_LOG_BYTES = 1 << 26


@dataclass(frozen=True, slots=True, kw_only=True)
class XidError:
    """One Xid line of the NVIDIA kernel driver.

    Attributes:
        pci: Where the GPU sits, as `0000:3b:00`: domain, bus and device.
        xid: The number of the error.
        line: The whole line; `encode_reversibly` gives its bytes.
    """

    pci: str
    xid: int
    line: str


def parse_dmesg(raw: bytes) -> tuple[XidError, ...]:
    """The Xid errors of a log, in its order. Bytes that are no text do not hide a line."""
    errors = []
    for line in raw.splitlines():
        for found in _XID.finditer(line):
            pci = pci_address(int(found[1], 16), int(found[2], 16), int(found[3], 16))
            errors.append(XidError(pci=pci, xid=int(found[4]), line=decode_reversibly(line)))
    return tuple(errors)


def pci_address(domain: int, bus: int, device: int) -> str:
    """A PCI address in the form that `XidError.pci` has."""
    return f"{domain:04x}:{bus:02x}:{device:02x}"


def read_kernel_log(path: Path = KERNEL_LOG) -> bytes | None:
    """What the kernel log holds now, or None when it may not be read. Never waits.

    The log is a ring: after a flood of messages the oldest lines are gone.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return b"".join(_records(descriptor))
    finally:
        os.close(descriptor)


def _records(descriptor: int) -> Iterable[bytes]:
    num_bytes = 0
    while num_bytes < _MAX_LOG_BYTES:
        try:
            record = os.read(descriptor, _LONGEST_RECORD_BYTES)
        except BrokenPipeError:
            continue  # The ring went past us; the next read starts at what is left.
        except OSError:
            return
        if not record:
            return
        num_bytes += len(record)
        yield record
