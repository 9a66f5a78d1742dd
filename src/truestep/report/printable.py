# SPDX-License-Identifier: Apache-2.0
"""Text that others wrote, for plain output. Light, since every command loads it."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""The text on one line, in which what is not printable is `\xNN`."""
    return "".join(c if c.isprintable() else _code(c) for c in text)


def _code(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
