# SPDX-License-Identifier: Apache-2.0
"""A result sheet: what was run, on what, and what came out, dated, in Markdown."""

from __future__ import annotations

import argparse
import datetime as dt
import math
import os
import platform
import re
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

import truestep

FOLDER = Path(__file__).parent / "results"
LIBRARIES = ("numpy", "torch", "jax")


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The arguments that every measurement takes."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies every count")
    parser.add_argument(
        "--output", type=Path, help="folder of the sheet; at full scale benchmarks/results"
    )
    return parser


def scaled(count: int, scale: float) -> int:
    """A count times the scale, at least one."""
    return max(1, math.ceil(count * scale))


def hardware() -> str:
    """Model of the processor and number of cores."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(encoding="utf-8") if cpuinfo.exists() else ""
    found = re.search(r"model name\s*:\s*(.+)", text)
    return (found[1].strip() if found else platform.machine()) + f", {os.cpu_count()} cores"


def slug(words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def header(title: str, *, what_hardware: str = "") -> str:
    """Title, command, hardware, date, load and versions."""
    versions = [f"truestep {truestep.__version__}", f"Python {platform.python_version()}"]
    for name in LIBRARIES:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    command = " ".join([f"python benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    return f"""# {title}

Command: `{command}`
Hardware: {what_hardware or hardware()}. Date: {dt.datetime.now(dt.UTC):%Y-%m-%d}. Load average at
the end: {os.getloadavg()[0]:.1f}.
Versions: {", ".join(versions)}.
"""


def publish(
    text: str, *, what: str, args: argparse.Namespace, what_hardware: str = ""
) -> Path | None:
    """Print a sheet; write it where asked to, and beside the others at full scale."""
    print(text)
    folder: Path | None = args.output or (FOLDER if args.scale >= 1 else None)
    if folder is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    month = f"{dt.datetime.now(dt.UTC):%Y%m}"
    path = folder / f"{what}_{slug(what_hardware or hardware())}_{month}.md"
    path.write_text(text, encoding="utf-8")
    print(f"written: {path}")
    return path
