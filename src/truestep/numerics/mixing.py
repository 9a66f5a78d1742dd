# SPDX-License-Identifier: Apache-2.0
"""The splitmix64 finaliser in int64, from which digests and counter-based inputs are made.

Written once over any array namespace whose int64 wraps: torch lacks uint64 arithmetic, so every
right shift is arithmetic and masked.
"""

from __future__ import annotations

from typing import Any

GAMMA = 0x9E3779B97F4A7C15
"""Step between counters. Source: Steele, Lea, Flood, "Fast splittable PRNGs", OOPSLA 2014."""

MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""Multipliers of the finaliser. Source: as for GAMMA (variant 13 of Stafford's mixers)."""

WORD = 1 << 64


def signed(value: int) -> int:
    """The two's-complement int64 with the low 64 bits of `value`."""
    value %= WORD
    return value - WORD if value >= WORD // 2 else value


def shift_right(words: Any, bits: int) -> Any:
    """Logical right shift of int64 words by 1 to 63 bits."""
    return (words >> bits) & ((1 << (64 - bits)) - 1)


def xor_shift(words: Any, bits: int) -> Any:
    """`words ^ (words >>> bits)`."""
    return words ^ shift_right(words, bits)


def mix(words: Any) -> Any:
    """The splitmix64 finaliser of each int64 word. A bijection."""
    words = xor_shift(words, 30) * signed(MULTIPLIERS[0])
    words = xor_shift(words, 27) * signed(MULTIPLIERS[1])
    return xor_shift(words, 31)


def mix_int(value: int) -> int:
    """`mix` of one Python integer, in [0, 2^64)."""
    value %= WORD
    value = (value ^ (value >> 30)) * MULTIPLIERS[0] % WORD
    value = (value ^ (value >> 27)) * MULTIPLIERS[1] % WORD
    return value ^ (value >> 31)


def derive(seed: int, *path: int) -> int:
    """A seed below another one, in [0, 2^64), different for every path of integers."""
    for step in path:
        seed = mix_int(mix_int(seed) + GAMMA * (step + 1))
    return seed
