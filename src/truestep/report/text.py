# SPDX-License-Identifier: Apache-2.0
"""Text that others wrote, made safe to show: device names, details, paths."""

from __future__ import annotations

import os
import shlex

from rich.markup import escape

from truestep.report.printable import printable


def shown(text: str) -> str:
    r"""The text as rich shall print it: markup stays text, and what is not printable is `\xNN`.

    A device name may hold bytes that clear a terminal or pretend another outcome.
    """
    plain = printable(text)
    # The space: rich doubles a backslash at the end, and shows it doubled.
    return escape(plain + " ")[:-1]


def one_line(command: str) -> str:
    """A command of a shell on one line, as bash takes it: what is not printable is quoted $'..'."""
    if command.isprintable():
        return command
    return " ".join(map(_quoted, shlex.split(command)))


def _quoted(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    kept = ("\\'" if c == "'" else c for c in word.replace("\\", "\\\\"))
    return "$'" + "".join(c if c.isprintable() else _octal(c) for c in kept) + "'"


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in os.fsencode(character))
