# SPDX-License-Identifier: Apache-2.0
"""The digest of torch tensors, where they are: eager on any device, or compiled where asked for.

Held bit for bit to `truestep.numerics.digest`. On a CPU the numpy kernel reads the same memory, or
the C kernel where compiling is allowed. Accelerators run one torch function over a block of rows,
`[k, n]` words of which row j starts at index `start[j]`, eager or compiled: a large tensor is cut
into rows, and many small ones of equal size are stacked into rows to share one call.

Compiling takes time, so nothing is compiled unless `compiled=True`.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch

from truestep.backends import digest_native, digest_numpy
from truestep.numerics import bits
from truestep.numerics.digest import MASK, WORD_BYTES, Sums, finish, mix

ROW_WORDS = 1 << 13
"""Words of one row of a large tensor."""

SMALL_BYTES = 1 << 20
"""Tensors up to this size are stacked: reading twice is cheaper than a call for each."""

BLOCK_BYTES = 1 << 26
"""Bytes of a stack, and of a block in eager use, which bounds the temporaries."""

Block = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _block(words: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    """Lane sums `[2, k]` of int64 words `[k, n]`, of which row j starts at index `start[j]`."""
    # The index must take part of its value from data, here `start`: torch 2.13 compiles
    # `torch.arange(n) * K1` of dynamic n to wrong bits where the product exceeds int64.
    index = torch.arange(words.shape[1], dtype=torch.int64, device=words.device)
    first, second = mix(words, index[None, :] + start[:, None])
    return torch.stack([first.sum(1), second.sum(1)])


@functools.cache
def _compiled_block() -> Block:
    with warnings.catch_warnings():
        # The compiler's own modules use what torch has deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        importlib.import_module("torch._inductor.compile_fx")
    return torch.compile(_block, dynamic=True, fullgraph=True)


def words(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes in row-major order as int64 words, one axis, the tail padded with zeros.

    Shares memory with a contiguous, aligned tensor of whole words; do not write.
    """
    # Axes of length zero or one may have any stride, which a view to another width refuses.
    flat = tensor.detach().resolve_neg().contiguous().as_strided((tensor.numel(),), (1,))
    num_bytes = flat.numel() * flat.element_size()
    if num_bytes % WORD_BYTES == 0:
        if flat.storage_offset() * flat.element_size() % WORD_BYTES:
            flat = flat.clone()
        return flat.view(torch.int64)
    padded = torch.zeros(-(-num_bytes // WORD_BYTES), dtype=torch.int64, device=flat.device)
    padded.view(torch.uint8)[:num_bytes] = flat.view(torch.uint8)
    return padded


@functools.cache
def name_of(dtype: torch.dtype) -> str:
    """The name of a torch dtype in `numerics.bits.FORMATS`.

    Raises:
        ValueError: The dtype has no format.
    """
    name = str(dtype).removeprefix("torch.")
    bits.np_dtype(name)
    return name


def _rows_sums(rows: torch.Tensor, start: torch.Tensor, *, compiled: bool) -> torch.Tensor:
    """Lane sums `[2, k]` of a block, by the fastest code that is allowed."""
    # Sizes of zero and one would each be compiled anew.
    if compiled and min(rows.shape) > 1:
        return _compiled_block()(rows, start)
    return _block(rows, start)


@torch.no_grad()
def lane_sums(words: torch.Tensor, *, offset: int = 0, compiled: bool = False) -> Sums:
    """Both lane sums of int64 words with one axis, of which the first has index `offset`.

    Guarantees: equal to `numerics.digest.lane_sums`; `words` is only read.
    """
    if words.device.type != "cpu":
        return _sums_by_rows(words, offset=offset, compiled=compiled)
    if compiled and digest_native.is_available():
        kept = words.contiguous()
        first, second = digest_native.lane_sums_at(
            [kept.data_ptr()], [kept.nbytes], offsets=[offset]
        )
        return int(first[0]), int(second[0])
    return digest_numpy.lane_sums(words.numpy(), offset=offset)


def _sums_by_rows(words: torch.Tensor, *, offset: int, compiled: bool) -> Sums:
    """Lane sums of words cut into rows and, at the end, one shorter row."""
    num_rows, num_left = divmod(words.numel(), ROW_WORDS)
    start = torch.arange(num_rows + 1, dtype=torch.int64, device=words.device) * ROW_WORDS + offset
    rows = words[: num_rows * ROW_WORDS].view(num_rows, ROW_WORDS)
    step = max(1, num_rows if compiled else BLOCK_BYTES // (ROW_WORDS * WORD_BYTES))
    parts = [
        _rows_sums(rows[j : j + step], start[j : j + step][: num_rows - j], compiled=compiled)
        for j in range(0, num_rows, step)
    ]
    if num_left:
        parts.append(_block(words[None, -num_left:], start[-1:]))
    if not parts:
        return 0, 0
    total = torch.cat(parts, 1).sum(1).tolist()
    return total[0] & MASK, total[1] & MASK


def digest(tensor: torch.Tensor, *, compiled: bool = False) -> str:
    """The digest of a tensor of any format in `bits`, any shape, strides and device.

    Args:
        tensor: The tensor; it is only read.
        compiled: May code be compiled for this? The first use then takes longer, on an accelerator
            by seconds. On a CPU without a C compiler nothing changes.

    Raises:
        ValueError: The dtype has no format.
    """
    dtype = name_of(tensor.dtype)
    sums = lane_sums(words(tensor), compiled=compiled)
    return finish(sums, dtype=dtype, shape=tensor.shape)


def digest_many(tensors: Sequence[torch.Tensor], *, compiled: bool = False) -> tuple[str, ...]:
    """The digest of each tensor, in order; small ones of equal size share a call.

    Args:
        tensors: Tensors of any formats, shapes and devices; they are only read.
        compiled: May code be compiled for this? The first use then takes longer, on an accelerator
            by seconds. On a CPU without a C compiler nothing changes.

    Raises:
        ValueError: A dtype has no format.

    Guarantees: each equals `digest` of that tensor alone.
    """
    names = [name_of(tensor.dtype) for tensor in tensors]
    sums = np.zeros((2, len(tensors)), np.uint64)
    on_host = [j for j, tensor in enumerate(tensors) if tensor.device.type == "cpu"]
    sums[:, on_host] = _host_sums([tensors[j] for j in on_host], compiled=compiled)
    for positions in _groups(tensors):
        if len(positions) > 1:
            sums[:, positions] = _stack_sums([tensors[j] for j in positions], compiled=compiled)
        else:
            sums[:, positions[0]] = lane_sums(words(tensors[positions[0]]), compiled=compiled)
    return digest_numpy.finish_many(sums, dtypes=names, shapes=[t.shape for t in tensors])


def _host_sums(tensors: list[torch.Tensor], *, compiled: bool) -> npt.NDArray[np.uint64]:
    """Lane sums `[2, k]` of tensors on the CPU."""
    if compiled and digest_native.is_available():
        kept = [tensor.resolve_neg().contiguous() for tensor in tensors]
        return digest_native.lane_sums_at([t.data_ptr() for t in kept], [t.nbytes for t in kept])
    return digest_numpy.lane_sums_many([words(tensor).numpy() for tensor in tensors])


def _groups(tensors: Sequence[torch.Tensor]) -> Iterator[list[int]]:
    """Positions of tensors to stack, of one accelerator, dtype and size; large ones each alone."""
    alike: dict[tuple[torch.device, torch.dtype, int], list[int]] = {}
    for j, tensor in enumerate(tensors):
        if tensor.device.type != "cpu":
            alike.setdefault((tensor.device, tensor.dtype, tensor.numel()), []).append(j)
    for (_, dtype, size), positions in alike.items():
        num_bytes = size * dtype.itemsize
        is_small = 0 < num_bytes <= SMALL_BYTES and num_bytes % WORD_BYTES == 0
        most = BLOCK_BYTES // num_bytes if is_small else 1
        for begin in range(0, len(positions), most):
            yield positions[begin : begin + most]


@torch.no_grad()
def _stack_sums(tensors: list[torch.Tensor], *, compiled: bool) -> npt.NDArray[np.uint64]:
    """Lane sums `[2, k]` of equally large tensors of one dtype and device, in whole words."""
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    rows = flat.view(torch.int64).view(len(tensors), -1)
    start = torch.zeros(len(tensors), dtype=torch.int64, device=rows.device)
    found = _rows_sums(rows, start, compiled=compiled).cpu().numpy()
    return np.asarray(found).view(np.uint64)
