# SPDX-License-Identifier: Apache-2.0
"""The host CPU through numpy: always present, and the reference for the other backends."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import array_api_compat.numpy as xnp
import numpy as np

from truestep.backends import digest_numpy, grants, inventory
from truestep.backends.protocol import Array, Host
from truestep.backends.threads import THREAD_SWITCHES
from truestep.device import Device
from truestep.environment import Environment
from truestep.errors import UnsupportedError
from truestep.numerics import digest
from truestep.numerics.bits import FORMATS, np_dtype

_MATMUL = {
    "fp64": ("float64", "float64"),
    "fp32": ("float32", "float32"),
    "int8": ("int8", "int32"),
}
"""Precision to the dtypes of operands and result."""

_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    name: getattr(np, name)
    for name in ("exp", "exp2", "log", "log2", "sqrt", "reciprocal", "sin", "cos", "tanh")
}


def _scatter_add(x: Host, i: Host, v: Host) -> Host:
    total = x.copy()
    np.add.at(total, i, v)
    return total


_REARRANGE: dict[str, Callable[..., Array]] = {
    "take": lambda x, i: np.take(x, i, axis=0),
    "scatter_add": _scatter_add,
    "embedding_backward": lambda v, i, x: _scatter_add(np.zeros_like(x), i, v),
    "sort": lambda x: np.sort(x, axis=-1),
    "cumulative_sum": lambda x: np.cumsum(x, axis=-1, dtype=x.dtype),
    "transpose": lambda x: np.ascontiguousarray(x.T),
}

BIT_SWITCHES = (
    "OPENBLAS_CORETYPE",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "NPY_DISABLE_CPU_FEATURES",
)


class NumpyBackend:
    """Runs on the sockets of this host. See `Backend` for what each method gives."""

    name = "numpy"
    xp = xnp

    def devices(self) -> tuple[Device, ...]:
        """The granted sockets."""
        return inventory.sockets()

    def environment(self, device: Device) -> Environment:
        """Library, BLAS, ISA and the switches that change them."""
        config: Any = np.show_config(mode="dicts")
        blas = config["Build Dependencies"]["blas"]
        entries = {
            "backend": self.name,
            "device_model": device.model,
            "numpy": np.__version__,
            "blas": f"{blas.get('name')} {blas.get('version')}",
            "isa": " ".join(config["SIMD Extensions"].get("found", ())),
        }
        entries |= {n: os.environ[n] for n in THREAD_SWITCHES + BIT_SWITCHES if n in os.environ}
        return Environment(entries=entries)

    def supports(self, op: str, precision: str, device: Device) -> bool:
        """No product in the narrow formats; casts and element-wise work in all."""
        if op == "matmul":
            return precision in _MATMUL
        if op == "function":
            return precision in _FUNCTIONS
        return precision in FORMATS and not op.startswith(("attention", "transfer_"))

    def put(self, host: Host, device: Device) -> Array:
        """A copy."""
        return np.array(host, copy=True)

    def get(self, array: Array) -> Host:
        """The array itself."""
        return np.asarray(array)

    def words(self, array: Array) -> Array:
        """Row-major bytes as int64 words."""
        return digest.host_words(np.asarray(array))

    def cast(self, array: Array, dtype: str, *, site: str) -> Array:
        """`astype`, rounded to nearest even."""
        return np.asarray(array).astype(np_dtype(dtype))

    def matmul(self, a: Array, b: Array, *, precision: str, out: str, site: str) -> Array:
        """BLAS for floats; 32-bit integer sums for int8."""
        operand, result = _MATMUL.get(precision, ("", ""))
        if out != result:
            raise UnsupportedError(
                f"numpy must give one of {sorted(_MATMUL)} in its own dtype, got "
                f"{precision!r} in {out!r}. Use --backend torch."
            )
        if operand == "int8":
            return np.matmul(a, b, dtype=np.int32)
        return np.matmul(a, b)

    def elementwise(self, op: str, *arrays: Array, site: str) -> Array:
        """The numpy ufunc of that name in the array API."""
        return getattr(xnp, op)(*arrays)

    def reduce(self, op: str, array: Array, *, axis: int, site: str) -> Array:
        """`sum`, `max` or `min` in the dtype of the array."""
        if op == "sum":
            return np.sum(array, axis=axis, dtype=array.dtype)
        return getattr(np, op)(array, axis=axis)

    def rearrange(self, op: str, *arrays: Array, site: str) -> Array:
        """The numpy function that does it."""
        return np.asarray(_REARRANGE[op](*arrays))

    def function(self, name: str, array: Array, *, site: str) -> Array:
        """The numpy ufunc of that name."""
        return np.asarray(_FUNCTIONS[name](array))

    def attention(
        self, q: Array, k: Array, v: Array, *, scale: float, kernel: str, site: str
    ) -> Array:
        """Not to be had."""
        raise UnsupportedError("numpy has no fused attention. Use --backend torch.")

    def attention_backward(
        self, q: Array, k: Array, v: Array, gradient: Array, *, scale: float, kernel: str, site: str
    ) -> tuple[Array, Array, Array]:
        """Not to be had."""
        raise UnsupportedError("numpy has no fused attention. Use --backend torch.")

    def copy(self, array: Array, device: Device, *, site: str, into: Array | None = None) -> Array:
        """A fresh copy, or one in the memory of `into`."""
        if into is None:
            return np.array(array, copy=True)
        np.copyto(into, array)
        return into

    def transfer(self, array: Array, device: Device, *, is_pinned: bool, site: str) -> Array:
        """Two copies."""
        return self.put(self.put(array, device), device)

    def equal(self, actual: Array, expected: Array) -> bool:
        """Equality by value."""
        return bool(np.array_equal(actual, expected))

    def digest_many(self, arrays: Sequence[Array]) -> tuple[str, ...]:
        """Digests by the kernel in `digest_numpy`."""
        return digest_numpy.digest_many(arrays)

    def compile(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """The step itself: numpy compiles nothing."""
        return step

    def synchronize(self, device: Device) -> None:
        """Nothing to wait for."""

    def free_memory_bytes(self, device: Device) -> int:
        """Memory within the granted limit."""
        return grants.memory_limit_bytes() or 0

    @contextmanager
    def deterministic(self) -> Iterator[None]:
        """There is no switch; callers verify anyway."""
        yield
