# SPDX-License-Identifier: Apache-2.0
"""The task that the exact transformer learns: repeat the first half of a random sequence.

Tokens are drawn independently, so a word says nothing about the next one: only attention to the
first half can solve it. Shapes: B sequences, T positions, V words, N = B * T.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from truestep.numerics.inputs import random_words
from truestep.numerics.mixing import derive, shift_right
from truestep.workloads.exact_sizes import Size

Batch = dict[str, npt.NDArray[np.float32]]

UNSCORED = -1.0
"""Target where the next word cannot be known."""

HELD_OUT = 1 << 32
"""Steps from here on are never trained on."""


def batch(size: Size, step: int) -> Batch:
    """`tokens` and `targets` of one step, (N, 1), integers in float32, and its `pace` (1,).

    The target is the next word where it repeats the first half, else `UNSCORED`. The pace is a
    power of two that halves every `steps_per_halving`.
    """
    half = size.num_positions // 2
    num = size.num_sequences * half
    words = shift_right(random_words(np, num, seed=derive(7, step)), 32) * size.vocabulary >> 32
    first = words.reshape(size.num_sequences, half)
    tokens = np.concatenate([first, first], axis=1).astype(np.float32)
    targets = np.roll(tokens, -1, axis=1)
    targets[:, : half - 1] = UNSCORED
    targets[:, -1] = UNSCORED
    return {
        "tokens": tokens.reshape(-1, 1),
        "targets": targets.reshape(-1, 1),
        "pace": np.array([math.ldexp(1.0, -(step // size.steps_per_halving))], dtype=np.float32),
    }


def constants(size: Size, *, has_attention: bool = True) -> Batch:
    """`words` (V,), `positions` (N, T) one-hot and the causal `mask` (T, T), in float32.

    Without attention the mask is zero: what is left is a table from a word and its position.
    """
    t = size.num_positions
    return {
        "words": np.arange(size.vocabulary, dtype=np.float32),
        "positions": np.tile(np.eye(t, dtype=np.float32), (size.num_sequences, 1)),
        "mask": np.tril(np.ones((t, t), dtype=np.float32)) * np.float32(has_attention),
    }


def num_right(logits_nv: npt.NDArray[np.float32], targets: npt.NDArray[np.float32]) -> int:
    """How many scored targets have the largest logit; the first of equal ones counts."""
    is_scored = targets[:, 0] != UNSCORED
    return int((logits_nv.argmax(axis=-1) == targets[:, 0])[is_scored].sum())


def num_scored(targets: npt.NDArray[np.float32]) -> int:
    """How many targets are scored."""
    return int((targets != UNSCORED).sum())
