# SPDX-License-Identifier: Apache-2.0
"""Text that others wrote, made safe to show: device names, details, paths."""

from __future__ import annotations

from rich.markup import escape


def shown(text: str) -> str:
    r"""The text as rich shall print it: markup stays text, and what is not printable is `\xNN`.

    A device name may hold bytes that clear a terminal or pretend another outcome.
    """
    return escape("".join(c if c.isprintable() else _code(c) for c in text))


def _code(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
