# SPDX-License-Identifier: Apache-2.0
"""The digest: 128 bits of a tensor's bits, as 32 hexadecimal digits. This is the definition.

The bytes in row-major order, zero padded to whole 8-byte little-endian words x_i with global index
i, are mixed word by word, and each of two lanes sums its mixed words modulo 2^64::

    r  = (i + 1) * K1
    h  = x_i + r;                 h = (h ^ h >>> 30) * K2;   q = (h ^ h >>> 27) * K3
    S1 = sum of q ^ q >>> 31
    g  = (q - r) * K5;            S2 = sum of g ^ g >>> 32

Sums do not depend on the order, so any device, thread count or shard layout gives the same value.
Dtype and shape are folded in last. Fast kernels in `truestep.backends` are held to this module.

Bits are digested, not values: -0 and +0 differ on purpose, as do two NaNs. Apply
`bits.canonical_zero` first where a library may choose the sign of a zero.

Source: lane 1 is the finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014) on a Weyl
sequence. Why the second lane branches off before the last xor-shift: docs/decisions/001-digest.md.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import array_api_compat
import numpy as np
import numpy.typing as npt

from truestep.numerics import bits
from truestep.numerics.mixing import GAMMA, MULTIPLIERS, WORD, mix_int, signed, xor_shift

Sums = tuple[int, int]

MASK = WORD - 1
WORD_BYTES = 8

K1 = GAMMA
K2, K3 = MULTIPLIERS
K5 = 0xDA942042E4DD58B5


def mix(words: Any, index: Any) -> tuple[Any, Any]:
    """The mixed words of both lanes, for int64 words and their indices, by any namespace.

    Guarantees: for a fixed index both are bijections of the word.
    """
    r = (index + 1) * signed(K1)
    h = xor_shift(words + r, 30) * signed(K2)
    q = xor_shift(h, 27) * signed(K3)
    return xor_shift(q, 31), xor_shift((q - r) * signed(K5), 32)


def lane_sums(
    xp: Any,
    words: Any,
    *,
    offset: int = 0,
    row_words: int | None = None,
    row_stride: int | None = None,
) -> Sums:
    """Both lane sums of a tensor, or of a shard of it.

    Args:
        xp: An array-API namespace with wrapping int64.
        words: int64, one axis, as `host_words` gives them.
        offset: Index of the first word in the whole tensor.
        row_words: For a shard of columns: words of one row of the shard. Word w then has index
            `offset + w // row_words * row_stride + w % row_words`.
        row_stride: Words of one row of the whole tensor; given if and only if `row_words` is.

    Raises:
        ValueError: Only one of `row_words` and `row_stride` is given, or they are too small.

    Guarantees: the sums of shards whose edges fall on words `combine` to the sums of the whole.
    """
    index = xp.arange(words.shape[0], dtype=xp.int64, device=array_api_compat.device(words))
    if row_words is not None and row_stride is not None and 0 < row_words <= row_stride:
        index = index // row_words * row_stride + index % row_words
    elif row_words is not None or row_stride is not None:
        raise ValueError(
            "row_words and row_stride must come together, with 0 < row_words <= row_stride, got "
            f"{row_words!r} and {row_stride!r}."
        )
    first, second = mix(words, index + offset)
    return int(xp.sum(first, dtype=xp.int64)) & MASK, int(xp.sum(second, dtype=xp.int64)) & MASK


def combine(*sums: Sums) -> Sums:
    """The lane sums of a tensor from those of its shards, in any order."""
    return sum(s[0] for s in sums) & MASK, sum(s[1] for s in sums) & MASK


@functools.lru_cache(maxsize=4096)
def header(dtype: str, shape: tuple[int, ...]) -> Sums:
    """What a dtype's name and a whole shape add to the two lanes."""
    name = dtype.encode("ascii")
    pieces = (int.from_bytes(name[i : i + 8], "little") for i in range(0, len(name), 8))
    first, second = K1, K5
    for value in (len(name), *pieces, len(shape), *shape):
        first = mix_int((first + value) * K3 & MASK)
        second = mix_int((second + value) * K1 & MASK)
    return first, second


def finish(sums: Sums, *, dtype: str, shape: Iterable[int]) -> str:
    """The digest, from lane sums and what they do not hold: the dtype and the whole shape.

    Guarantees: for one dtype and shape, different sums give different digests.
    """
    first, second = header(dtype, tuple(shape))
    return f"{mix_int(sums[0] + first & MASK):016x}{mix_int(sums[1] + second & MASK):016x}"


def digest_words(digests: Iterable[str]) -> npt.NDArray[np.uint64]:
    """Digests as their two lanes, uint64 (number, 2)."""
    lanes = [int(text[i : i + 16], 16) for text in digests for i in (0, 16)]
    return np.array(lanes, dtype=np.uint64).reshape(-1, 2)


def digest_text(words: npt.NDArray[np.uint64]) -> tuple[str, ...]:
    """The digests of `digest_words`, as text again."""
    return tuple(f"{int(first):016x}{int(second):016x}" for first, second in words)


def host_words(array: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The bytes in row-major order as int64 words, one axis, the tail padded with zeros.

    Shares memory with a contiguous array of whole words; do not write.
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.nbytes % WORD_BYTES == 0:
        return flat.view(np.int64)
    padded = np.zeros(-(-flat.nbytes // WORD_BYTES), np.int64)
    padded.view(np.uint8)[: flat.nbytes] = flat.view(np.uint8)
    return padded


def digest(array: npt.NDArray[Any]) -> str:
    """The digest of a host array, by the definition. Slow: kernels are in `truestep.backends`.

    Raises:
        ValueError: The dtype has no format in `bits`.
    """
    dtype = bits.name_of(array.dtype)
    sums = lane_sums(array_api_compat.array_namespace(np.empty(0)), host_words(array))
    return finish(sums, dtype=dtype, shape=array.shape)
