# SPDX-License-Identifier: Apache-2.0
"""The `Backend` protocol: the few operations through which every stage reaches a device.

Every operation that computes takes a `site`, such as `matmul/bf16`. A backend ignores it; the
wrapper in `injection` uses it to plant a fault beneath whoever checks the result.

Dtypes are named as numpy and ml_dtypes name them (`float32`, `bfloat16`, `float8_e4m3fn`, `int8`).
Precisions are those of `numerics.exact.PRECISIONS` (`fp32`, `tf32`, `bf16`, ...): how a product
is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy.typing as npt

from truestep.device import Device
from truestep.environment import Environment

Host = npt.NDArray[Any]
Array = Any


class Backend(Protocol):
    """Runs computations on the devices of one library. Arrays carry their own device."""

    @property
    def name(self) -> str:
        """`numpy`, `torch` or `jax`."""

    @property
    def xp(self) -> Any:
        """The library's Python array API namespace (array-api-compat)."""

    def devices(self) -> tuple[Device, ...]:
        """The devices that this process may use, and no others."""

    def environment(self, device: Device) -> Environment:
        """All that may change bits on this device without a fault."""

    def supports(self, op: str, precision: str, device: Device) -> bool:
        """Whether `op` works there.

        `op` is `matmul`, with a precision; `function`, with a name from `function`; or `cast`,
        `elementwise`, `reduce`, `copy`, `rearrange`, `attention_<kernel>`, `transfer` (or
        `transfer_pinned`, by page-locked host memory), with a dtype.
        """

    def put(self, host: Host, device: Device) -> Array:
        """A copy on the device, bit for bit."""

    def get(self, array: Array) -> Host:
        """A host array of the same dtype, shape and bits. It may share memory; do not write."""

    def words(self, array: Array) -> Array:
        """The bytes in row-major order as int64 words, one axis, the tail padded with zeros."""

    def cast(self, array: Array, dtype: str, *, site: str) -> Array:
        """Conversion by value, rounded to nearest even."""

    def matmul(self, a: Array, b: Array, *, precision: str, out: str, site: str) -> Array:
        """`a @ b`, computed in `precision`, given in dtype `out`.

        Raises:
            UnsupportedError: `supports` says no, or `out` cannot be had.
        """

    def elementwise(self, op: str, *arrays: Array, site: str) -> Array:
        """One of `add subtract multiply divide`, or on integers also a bitwise operation.

        Those are `bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift`.
        Integers wrap.
        """

    def reduce(self, op: str, array: Array, *, axis: int, site: str) -> Array:
        """One of `sum`, `max`, `min` along an axis, in the dtype of the array."""

    def rearrange(self, op: str, *arrays: Array, site: str) -> Array:
        """Move rows of `x` (R, C) by int64 indices `i` (N,) with rows `v` (N, C), or elements.

        One of `take` (x, i): rows; `scatter_add` (x, i, v): x with v added, row by row, repeated
        indices included; `embedding_backward` (v, i, x): the same onto zeros, by the gradient of
        an embedding look-up; `sort`, `cumulative_sum` (x): along the last axis; `transpose` (x): a
        contiguous copy.
        """

    def function(self, name: str, array: Array, *, site: str) -> Array:
        """An inexact function, element by element or along the last axis.

        `exp exp2 log log2 sqrt rsqrt reciprocal sin cos tanh erf gelu silu` are element-wise;
        `softmax layer_norm rms_norm` work along the last axis.
        """

    def attention(
        self, q: Array, k: Array, v: Array, *, scale: float, kernel: str, site: str
    ) -> Array:
        """Softmax attention by one fused kernel: (B, H, T, D) in, (B, H, T, D) out. No mask."""

    def attention_backward(
        self, q: Array, k: Array, v: Array, gradient: Array, *, scale: float, kernel: str, site: str
    ) -> tuple[Array, Array, Array]:
        """Gradients of `attention` with respect to q, k and v; sites `<site>/dq`, `/dk`, `/dv`."""

    def copy(self, array: Array, device: Device, *, site: str, into: Array | None = None) -> Array:
        """The array's bits in the memory of `device`: fresh memory, or that of `into`.

        Use what is returned: a library without writable arrays gives fresh memory always.
        """

    def transfer(self, array: Array, device: Device, *, is_pinned: bool, site: str) -> Array:
        """The bits of an array of `device` after the way to the host and back.

        An accelerator's copy engines do it, beside what the device computes.
        """

    def equal(self, actual: Array, expected: Array) -> bool:
        """Whether two arrays of one device, dtype and shape are equal by value. Fast.

        -0 equals +0 (libraries differ in it) and NaN equals nothing, so for exact results this
        is equality of canonical bits; for integers and bool it is equality of bits.
        """

    def digest_many(self, arrays: Sequence[Array]) -> tuple[str, ...]:
        """Digests by `numerics.digest`, computed where the arrays are."""

    def compile(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, compiled where this library can."""

    def synchronize(self, device: Device) -> None:
        """Wait until the device has done all that was asked of it."""

    def free_memory_bytes(self, device: Device) -> int:
        """Memory that may be used there, within every granted limit."""

    def deterministic(self) -> AbstractContextManager[None]:
        """Ask the library for repeatable results. Callers verify it; they do not believe it."""
