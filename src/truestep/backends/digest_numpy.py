# SPDX-License-Identifier: Apache-2.0
"""The digest on a host processor without a compiler: uint64, in place, chunks that fit a cache.

Held bit for bit to `truestep.numerics.digest`. uint64 shifts are logical, so no masks are needed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from truestep.numerics import bits
from truestep.numerics.digest import K1, K2, K3, K5, MASK, Sums, finish, header, host_words

CHUNK_WORDS = 1 << 15
"""Words per chunk: with the ramp and two buffers 1 MiB, small enough for the cache of a core and
large enough to hide the cost of a call."""

Words = npt.NDArray[np.uint64]

# Arrays of no axes: numpy converts a scalar anew in every call.
_K2, _K3, _K5 = (np.array(k, np.uint64) for k in (K2, K3, K5))
_27, _30, _31, _32 = (np.array(by, np.uint64) for by in (27, 30, 31, 32))

_scratch = threading.local()


def _buffers() -> tuple[Words, Words, Words]:
    """The ramp `(i + 1) * K1` of index 0 and on, and two buffers, kept for this thread."""
    if not hasattr(_scratch, "buffers"):
        ramp = np.arange(1, CHUNK_WORDS + 1, dtype=np.uint64) * np.uint64(K1)
        _scratch.buffers = ramp, np.empty_like(ramp), np.empty_like(ramp)
    buffers: tuple[Words, Words, Words] = _scratch.buffers
    return buffers


def _mixed_sums(h: Words, r: Words, t: Words) -> npt.NDArray[np.uint64]:
    """Lane sums `[2, ...]` over the last axis of `h`, which holds `x + r`; `t` is a buffer."""
    np.right_shift(h, _30, t)
    np.bitwise_xor(h, t, h)
    np.multiply(h, _K2, h)
    np.right_shift(h, _27, t)
    np.bitwise_xor(h, t, h)
    np.multiply(h, _K3, h)
    np.right_shift(h, _31, t)
    np.bitwise_xor(h, t, t)
    first = np.add.reduce(t, -1)
    np.subtract(h, r, h)
    np.multiply(h, _K5, h)
    np.right_shift(h, _32, t)
    np.bitwise_xor(h, t, t)
    return np.array([first, np.add.reduce(t, -1)])


def lane_sums(words: npt.NDArray[np.int64], *, offset: int = 0) -> Sums:
    """Both lane sums of int64 words with one axis, of which the first has index `offset`.

    Guarantees: equal to `numerics.digest.lane_sums`; `words` is only read.
    """
    unsigned = words.view(np.uint64)
    ramp, h, t = _buffers()
    size = min(CHUNK_WORDS, unsigned.size)
    if offset or unsigned.size > size:
        ramp = ramp[:size] + np.uint64(offset * K1 & MASK)
    step = np.array(size * K1 & MASK, np.uint64)
    total = np.zeros(2, np.uint64)
    for start in range(0, unsigned.size, CHUNK_WORDS):
        if start:
            np.add(ramp, step, ramp)
        chunk = unsigned[start : start + CHUNK_WORDS]
        n = chunk.size
        np.add(chunk, ramp[:n], h[:n])
        np.add(total, _mixed_sums(h[:n], ramp[:n], t[:n]), total)
    return int(total[0]), int(total[1])


def _stack_sums(stack: Sequence[npt.NDArray[np.int64]]) -> Words:
    """Lane sums `[2, k]` of k word arrays of one size, which fit into a chunk together."""
    n, k = stack[0].size, len(stack)
    ramp, h, t = _buffers()
    rows = h[: n * k].reshape(k, n)
    for row, words in zip(rows, stack, strict=True):
        np.add(words.view(np.uint64), ramp[:n], row)
    return _mixed_sums(rows, ramp[:n], t[: n * k].reshape(k, n))


def lane_sums_many(words: Sequence[npt.NDArray[np.int64]]) -> Words:
    """Lane sums `[2, k]` of k whole tensors given as words; small ones of a size share calls.

    Guarantees: each column equals `lane_sums` of that tensor alone.
    """
    sums = np.zeros((2, len(words)), np.uint64)
    alike: dict[int, list[int]] = {}
    for j, one in enumerate(words):
        alike.setdefault(one.size, []).append(j)
    for size, positions in alike.items():
        most = CHUNK_WORDS // max(size, 1)
        if size == 0 or most < 2:
            for j in positions:
                sums[:, j] = lane_sums(words[j])
            continue
        for begin in range(0, len(positions), most):
            part = positions[begin : begin + most]
            sums[:, part] = _stack_sums([words[j] for j in part])
    return sums


def finish_many(
    sums: Words, *, dtypes: Sequence[str], shapes: Sequence[tuple[int, ...]]
) -> tuple[str, ...]:
    """The digests of k tensors from their lane sums `[2, k]`.

    Guarantees: each equals `numerics.digest.finish`.
    """
    headers = [header(*pair) for pair in zip(dtypes, shapes, strict=True)]
    x = sums + np.array(headers, np.uint64).reshape(-1, 2).T
    for by, factor in ((_30, _K2), (_27, _K3)):
        x = (x ^ x >> by) * factor
    text = (x ^ x >> _31).T.astype(">u8").tobytes().hex()
    return tuple(text[i : i + 32] for i in range(0, len(text), 32))


def digest(array: npt.NDArray[Any]) -> str:
    """The digest of a host array of any format in `bits`, any shape and strides.

    Raises:
        ValueError: The dtype has no format.
    """
    name = bits.name_of(array.dtype)
    return finish(lane_sums(host_words(array)), dtype=name, shape=array.shape)


def digest_many(arrays: Sequence[npt.NDArray[Any]]) -> tuple[str, ...]:
    """The digest of each array, in order.

    Raises:
        ValueError: A dtype has no format.

    Guarantees: each equals `digest` of that array alone.
    """
    names = [bits.name_of(array.dtype) for array in arrays]
    sums = lane_sums_many([host_words(array) for array in arrays])
    return finish_many(sums, dtypes=names, shapes=[array.shape for array in arrays])
