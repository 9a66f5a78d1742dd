# SPDX-License-Identifier: Apache-2.0
"""Any XLA device through JAX. Precision is named in every product; nothing is left to a default.

Wide integers are switched on within a block and never globally, so that a program that shares the
process keeps its own setting. Tested on the CPU; not yet run on a GPU or TPU.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from truestep.backends import grants, inventory
from truestep.backends.numpy_backend import BIT_SWITCHES
from truestep.backends.protocol import Array, Host
from truestep.backends.threads import THREAD_SWITCHES
from truestep.device import Device
from truestep.environment import Environment
from truestep.errors import UnsupportedError
from truestep.numerics import digest
from truestep.numerics.bits import FORMATS, name_of
from truestep.numerics.exact import PRECISIONS

NO_EXCESS = "--xla_allow_excess_precision=false"
"""XLA may keep more bits between fused operations than the program says; this forbids it."""

if NO_EXCESS not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {NO_EXCESS}".strip()

import jax  # noqa: E402  reads the flags when it starts
import jax.numpy as jnp  # noqa: E402
import jaxlib.version  # noqa: E402
import numpy as np  # noqa: E402

_Method = TypeVar("_Method", bound=Callable[..., Any])

_ALGORITHMS = {
    "fp64": jax.lax.Precision.HIGHEST,
    "fp32": jax.lax.Precision.HIGHEST,
    "tf32": jax.lax.DotAlgorithmPreset.TF32_TF32_F32,
    "bf16": jax.lax.DotAlgorithmPreset.BF16_BF16_F32,
    "fp16": jax.lax.Precision.HIGHEST,
    "int8": None,
}

_EXTRA_OUTPUTS = {("bf16", "float32"), ("fp16", "float32")}
"""Results that are given besides the natural ones: the accumulator itself."""


_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    **{n: getattr(jnp, n) for n in ("exp", "exp2", "log", "log2", "sqrt", "sin", "cos", "tanh")},
    "rsqrt": jax.lax.rsqrt,
    "reciprocal": jnp.reciprocal,
    "erf": jax.lax.erf,
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "silu": jax.nn.silu,
    "softmax": jax.nn.softmax,
}

_REARRANGE: dict[str, Callable[..., Array]] = {
    "take": lambda x, i: jnp.take(x, i, axis=0),
    "scatter_add": lambda x, i, v: x.at[i].add(v),
    "embedding_backward": lambda v, i, x: jnp.zeros_like(x).at[i].add(v),
    "sort": lambda x: jnp.sort(x, axis=-1),
    "cumulative_sum": lambda x: jnp.cumsum(x, axis=-1, dtype=x.dtype),
    "transpose": lambda x: jnp.copy(x.T),
}


@jax.jit
def _words(array: Array) -> Array:
    if array.dtype == jnp.bool_:
        array = array.astype(jnp.uint8)
    size = array.dtype.itemsize
    flat = array.reshape(-1)
    short = -flat.size * size % digest.WORD_BYTES // size
    rows = jnp.pad(flat, (0, short)).reshape(-1, digest.WORD_BYTES // size)
    return jax.lax.bitcast_convert_type(rows[:, 0] if size == 8 else rows, jnp.int64)


@jax.jit
def _lane_sums(array: Array) -> Array:
    words = _words(array)
    lanes = digest.mix(words, jnp.arange(words.size, dtype=jnp.int64))
    return jnp.stack([lane.sum() for lane in lanes])


@functools.partial(jax.jit, static_argnames="scale")
def _attend(q: Array, k: Array, v: Array, *, scale: float) -> Array:
    heads_first = (jnp.swapaxes(x, 1, 2) for x in (q, k, v))
    with jax.default_matmul_precision("highest"):
        out = jax.nn.dot_product_attention(*heads_first, scale=scale, implementation="xla")
    return jnp.swapaxes(out, 1, 2)


@functools.partial(jax.jit, static_argnames="scale")
def _attend_backward(q: Array, k: Array, v: Array, gradient: Array, *, scale: float) -> Any:
    _, back = jax.vjp(functools.partial(_attend, scale=scale), q, k, v)
    return back(gradient)


def _wide(method: _Method) -> _Method:
    """Run a method with 64-bit types switched on."""

    @functools.wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        with jax.enable_x64(True):
            return method(*args, **kwargs)

    return run  # type: ignore[return-value]


class JaxBackend:
    """Runs on the sockets of this host, or on every accelerator that XLA shows. See `Backend`."""

    name = "jax"
    xp = jnp

    def devices(self) -> tuple[Device, ...]:
        """Accelerators where XLA has some, else the granted sockets."""
        found = jax.devices()
        if found[0].platform == "cpu":
            return inventory.sockets()
        return tuple(Device(id=f"xla:{d.id}", kind="xla", model=str(d.device_kind)) for d in found)

    def environment(self, device: Device) -> Environment:
        """Versions, platform, XLA's flags and threads."""
        entries = {
            "backend": self.name,
            "device_model": device.model,
            "jax": jax.__version__,
            "jaxlib": jaxlib.version.__version__,
            "platform": _address(device).client.platform_version,
        }
        switches = (*THREAD_SWITCHES, *BIT_SWITCHES, "XLA_FLAGS", "LIBTPU_INIT_ARGS")
        entries |= {name: os.environ[name] for name in switches if name in os.environ}
        return Environment(entries=entries)

    def supports(self, op: str, precision: str, device: Device) -> bool:
        """Whether the operation works on that device."""
        if op == "matmul":
            return _can_multiply(precision)
        if op == "function":
            return precision in _FUNCTIONS
        if op.startswith("attention_"):
            return op == "attention_math" and precision in ("float32", "bfloat16")
        return precision in FORMATS and op != "transfer_pinned"

    @_wide
    def put(self, host: Host, device: Device) -> Array:
        """A copy of the bits."""
        return jax.device_put(np.array(host, copy=True), _address(device), may_alias=False)

    def get(self, array: Array) -> Host:
        """The bits on the host."""
        return np.asarray(array)

    @_wide
    def words(self, array: Array) -> Array:
        """Row-major bytes as int64 words."""
        return _words(array)

    @_wide
    def cast(self, array: Array, dtype: str, *, site: str) -> Array:
        """`astype`, rounded to nearest even."""
        return array.astype(dtype)

    @_wide
    def matmul(self, a: Array, b: Array, *, precision: str, out: str, site: str) -> Array:
        """`jnp.matmul` with the algorithm and the type of the result spelt out."""
        is_natural = precision in PRECISIONS and out == PRECISIONS[precision].natural_output
        is_given = is_natural or (precision, out) in _EXTRA_OUTPUTS
        if not _can_multiply(precision) or not is_given:
            raise UnsupportedError(
                f"jax must give one of {sorted(_ALGORITHMS)} in its own dtype, got "
                f"{precision!r} in {out!r}. Choose another precision, or cast the result."
            )
        # The accumulator is shown in 32 bits and rounded once, whatever kernel XLA chooses.
        wide = {"bfloat16": "float32", "float16": "float32"}.get(out, out)
        result = jnp.matmul(a, b, precision=_ALGORITHMS[precision], preferred_element_type=wide)
        return result.astype(out)

    @_wide
    def elementwise(self, op: str, *arrays: Array, site: str) -> Array:
        """The function of that name in `jax.numpy`."""
        return getattr(jnp, op)(*arrays)

    @_wide
    def reduce(self, op: str, array: Array, *, axis: int, site: str) -> Array:
        """`sum`, `max` or `min` in the dtype of the array."""
        if op == "sum":
            return jnp.sum(array, axis=axis, dtype=array.dtype)
        return getattr(jnp, op)(array, axis=axis)

    @_wide
    def rearrange(self, op: str, *arrays: Array, site: str) -> Array:
        """The function of `jax.numpy` that does it."""
        return _REARRANGE[op](*arrays)

    def function(self, name: str, array: Array, *, site: str) -> Array:
        """The function of that name in `jax.numpy`, `jax.lax` or `jax.nn`."""
        return _FUNCTIONS[name](array)

    def attention(
        self, q: Array, k: Array, v: Array, *, scale: float, kernel: str, site: str
    ) -> Array:
        """`dot_product_attention` as XLA compiles it."""
        return _attend(q, k, v, scale=scale)

    def attention_backward(
        self, q: Array, k: Array, v: Array, gradient: Array, *, scale: float, kernel: str, site: str
    ) -> tuple[Array, Array, Array]:
        """Gradients by `jax.vjp`."""
        dq, dk, dv = _attend_backward(q, k, v, gradient, scale=scale)
        return dq, dk, dv

    @_wide
    def copy(self, array: Array, device: Device, *, site: str, into: Array | None = None) -> Array:
        """A copy in fresh memory: arrays of JAX are never written to."""
        return jax.device_put(jnp.copy(array), _address(device), may_alias=False)

    def transfer(self, array: Array, device: Device, *, is_pinned: bool, site: str) -> Array:
        """To the host and back."""
        return self.put(self.get(array), device)

    @_wide
    def equal(self, actual: Array, expected: Array) -> bool:
        """Equality by value, found on the bits: XLA takes a subnormal number for zero."""
        if actual.shape != expected.shape:
            return False
        if not jnp.issubdtype(actual.dtype, jnp.floating):
            return bool(jnp.array_equal(actual, expected))
        words = f"uint{actual.dtype.itemsize * 8}"
        a, b = (jax.lax.bitcast_convert_type(x, words) for x in (actual, expected))
        magnitude = (1 << (actual.dtype.itemsize * 8 - 1)) - 1
        is_same = (a == b) | (((a | b) & magnitude) == 0)
        return bool(jnp.all(is_same & ~jnp.isnan(actual)))

    @_wide
    def digest_many(self, arrays: Sequence[Array]) -> tuple[str, ...]:
        """Digests by the definition, computed where the arrays are."""
        sums = [np.asarray(_lane_sums(array)).view(np.uint64).tolist() for array in arrays]
        return tuple(
            digest.finish((first, second), dtype=name_of(array.dtype), shape=array.shape)
            for (first, second), array in zip(sums, arrays, strict=True)
        )

    def compile(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """`jax.jit`."""
        compiled: Callable[..., Any] = jax.jit(step)
        return compiled

    def synchronize(self, device: Device) -> None:
        """Nothing to wait for: what is compared has been waited for."""

    def free_memory_bytes(self, device: Device) -> int:
        """What an accelerator reports as free, or the granted limit of the host."""
        if device.kind == "cpu":
            return grants.memory_limit_bytes() or 0
        stats = _address(device).memory_stats() or {}
        return max(0, int(stats.get("bytes_limit", 0)) - int(stats.get("bytes_in_use", 0)))

    @contextmanager
    def deterministic(self) -> Iterator[None]:
        """XLA's choices are in its flags; callers verify anyway."""
        yield


def _can_multiply(precision: str) -> bool:
    # Asked of the process and not of the array: under tracing an array lies nowhere.
    return precision in _ALGORITHMS and (precision != "tf32" or jax.default_backend() != "cpu")


def _address(device: Device) -> Any:
    if device.kind == "cpu":
        return jax.devices("cpu")[0]
    return jax.devices()[int(device.id.rpartition(":")[2])]
