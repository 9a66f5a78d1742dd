# SPDX-License-Identifier: Apache-2.0
"""The small text files in which the kernel reports: read whole, or not reported at all.

Roots such as `/sys` and `/proc` are arguments everywhere, so that a small tree on disk can stand
for any machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from truestep.context import decode_reversibly

SYS_ROOT = Path("/sys")
PROC_ROOT = Path("/proc")
ETC_ROOT = Path("/etc")

_RANGE = re.compile(r"(\d+)(?:-(\d+))?\Z")
_MAX_CPUS = 1 << 16


def read_text(path: Path) -> str:
    """The text of a file without outer blanks; empty when it cannot be read.

    Guarantees: never raises for what a file holds or for rights that are missing.
    """
    try:
        return decode_reversibly(path.read_bytes()).strip()
    except OSError:
        return ""


def read_int(path: Path) -> int | None:
    """The whole number that a file holds, or None."""
    try:
        return int(read_text(path))
    except ValueError:
        return None


def parse_cpu_list(text: str) -> frozenset[int]:
    """The processors in a kernel list such as `0-3,8`. What is no such list gives none."""
    numbers: set[int] = set()
    for part in text.replace(",", " ").split():
        found = _RANGE.match(part)
        if found is None:
            return frozenset()
        first, last = int(found[1]), int(found[2] or found[1])
        if last >= _MAX_CPUS:
            return frozenset()
        numbers.update(range(first, last + 1))
    return frozenset(numbers)


def numbered(folder: Path, prefix: str) -> Iterator[tuple[int, Path]]:
    """The entries named `<prefix><number>` in a folder, by number; none when it is missing."""
    pattern = re.compile(re.escape(prefix) + r"(\d+)\Z")
    try:
        names = [entry.name for entry in folder.iterdir()]
    except OSError:
        return
    found = [(int(match[1]), name) for name in names if (match := pattern.match(name))]
    for number, name in sorted(found):
        yield number, folder / name


def cpuinfo(proc_root: Path = PROC_ROOT) -> dict[int, dict[str, str]]:
    """Logical processor to its fields in `/proc/cpuinfo`; empty when it cannot be read."""
    processors: dict[int, dict[str, str]] = {}
    for block in re.split(r"\n\s*\n", read_text(proc_root / "cpuinfo")):
        pairs = (line.split(":", 1) for line in block.splitlines() if ":" in line)
        fields = {name.strip(): value.strip() for name, value in pairs}
        if fields.get("processor", "").isdecimal():
            processors[int(fields["processor"])] = fields
    return processors
