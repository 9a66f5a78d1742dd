# SPDX-License-Identifier: Apache-2.0
"""Seeded, counter-based integers: the same bits from every array library and device.

Element i of a stream depends on the seed and i alone, so a block of a large tensor can be made
without the rest, and a failing record can be replayed from its seed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from truestep.errors import ConfigError
from truestep.numerics.mixing import GAMMA, mix, shift_right, signed

BLOCK = 1 << 15
"""Elements drawn at a time, so that what lies between two steps stays in the cache."""

MOST_AMPLITUDE = (1 << 30) - 1
"""Up to here a 32-bit word times the number of values fits into int64."""


class Distribution(StrEnum):
    """How integers in [-amplitude, amplitude] are spread."""

    UNIFORM = "uniform"
    GAUSSIAN = "gaussian"
    HEAVY_TAIL = "heavy_tail"
    POSITIVE = "positive"


def random_words(xp: Any, num: int, *, seed: int, offset: int = 0, **where: Any) -> Any:
    """`num` int64 words of full entropy: elements `offset`.. of the stream of `seed`.

    Args:
        xp: An array API namespace whose int64 wraps.
        num: Length.
        seed: Any integer; its low 64 bits count.
        offset: First element.
        where: Passed to `xp.arange`, such as `device=`.

    Guarantees:
        The same words in every namespace; `offset` cuts out a block of one stream.
    """
    counters = xp.arange(offset + 1, offset + num + 1, dtype=xp.int64, **where)
    return mix(counters * signed(GAMMA) + signed(seed))


def random_integers(
    shape: tuple[int, ...],
    *,
    seed: int,
    amplitude: int,
    distribution: Distribution = Distribution.UNIFORM,
) -> npt.NDArray[np.int64]:
    """Integers in [-amplitude, amplitude] (from 1 for `POSITIVE`), by integer arithmetic alone.

    `GAUSSIAN` is the sum of four uniform 16-bit parts (Irwin-Hall), quantised as an activation
    is; `HEAVY_TAIL` halves the amplitude a geometric number of times, as gradients are spread.

    Args:
        shape: Shape of the result.
        seed: Any integer.
        amplitude: From 1 to `MOST_AMPLITUDE`.
        distribution: How the values are spread.

    Raises:
        ConfigError: The amplitude is out of range.
    """
    if not 1 <= amplitude <= MOST_AMPLITUDE:
        raise ConfigError(f"amplitude must lie in 1..{MOST_AMPLITUDE}, got {amplitude!r}.")
    num = int(np.prod(shape, dtype=np.int64))
    drawn = np.empty(num, dtype=np.int64)
    for first in range(0, num, BLOCK):
        block = drawn[first : first + BLOCK]
        words = random_words(np, block.size, seed=seed, offset=first)
        block[:] = _drawn(words, amplitude, distribution)
    return drawn.reshape(shape)


def _drawn(
    words: npt.NDArray[np.int64], amplitude: int, distribution: Distribution
) -> npt.NDArray[np.int64]:
    span = 2 * amplitude + 1
    if distribution is Distribution.UNIFORM:
        return _scaled(shift_right(words, 32), span) - amplitude
    if distribution is Distribution.POSITIVE:
        return _scaled(shift_right(words, 32), amplitude) + 1
    if distribution is Distribution.GAUSSIAN:
        parts = words & 0xFFFF
        for shift in (16, 32, 48):
            parts += shift_right(words, shift) & 0xFFFF
        return (parts * span >> 18) - amplitude
    halvings = np.zeros_like(words)
    for bit in range(16):
        halvings += (words & ((2 << bit) - 1)) == 0
    return (_scaled(shift_right(words, 32), span) - amplitude) // (1 << halvings)


def _scaled(words_32: npt.NDArray[np.int64], span: int) -> npt.NDArray[np.int64]:
    """32-bit words mapped to [0, span) by multiply and shift; `span` below 2^31."""
    return words_32 * span >> 32
