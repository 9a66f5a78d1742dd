# SPDX-License-Identifier: Apache-2.0
"""The host CPU and accelerators through PyTorch: CUDA and ROCm.

The accelerator paths have not yet been run on a GPU; a CPU covers all that they share with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import array_api_compat.torch as xtorch
import numpy as np
import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from truestep.backends import digest_torch, grants, inventory
from truestep.backends.numpy_backend import BIT_SWITCHES
from truestep.backends.protocol import Array, Host
from truestep.backends.threads import THREAD_SWITCHES
from truestep.device import Device
from truestep.environment import Environment
from truestep.errors import UnsupportedError
from truestep.numerics.bits import FORMATS, name_of, np_dtype
from truestep.numerics.exact import PRECISIONS

_SWITCHES = (
    *THREAD_SWITCHES,
    *BIT_SWITCHES,
    "ATEN_CPU_CAPABILITY",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_LAUNCH_BLOCKING",
    "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_MAX_CPU_ISA",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)

_KERNELS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}

_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    **{
        name: getattr(torch, name)
        for name in (
            *("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "reciprocal"),
            *("sin", "cos", "tanh", "erf"),
        )
    },
    "gelu": functional.gelu,
    "silu": functional.silu,
    "softmax": lambda x: torch.softmax(x, dim=-1),
    "layer_norm": lambda x: functional.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: functional.rms_norm(x, x.shape[-1:], eps=1e-5),
}


def _embedding_backward(rows: Array, index: Array, table: Array) -> Array:
    return torch.ops.aten.embedding_dense_backward(rows, index, table.shape[0], -1, False)


_REARRANGE: dict[str, Callable[..., Array]] = {
    "take": lambda x, i: torch.index_select(x, 0, i),
    "scatter_add": lambda x, i, v: x.index_add(0, i, v),
    "embedding_backward": _embedding_backward,
    "sort": lambda x: torch.sort(x, dim=-1).values,
    "cumulative_sum": lambda x: torch.cumsum(x, dim=-1, dtype=x.dtype),
    "transpose": lambda x: x.T.contiguous(),
}

_LEAST_CAPABILITY = {"tf32": (8, 0), "fp8": (8, 9)}

_BITS_AS = {8: torch.uint8, 16: torch.int16, 32: torch.int32, 64: torch.int64}


class TorchBackend:
    """Runs on host sockets and on every visible accelerator. See `Backend`."""

    name = "torch"
    xp = xtorch

    def devices(self) -> tuple[Device, ...]:
        """Sockets first, then accelerators by index."""
        return (*inventory.sockets(), *_accelerators())

    def environment(self, device: Device) -> Environment:
        """Versions of torch and its libraries, effective ISA, threads, driver, and every switch."""
        entries = {
            "backend": self.name,
            "device_model": device.model,
            "torch": torch.__version__,
            "torch_git": str(torch.version.git_version),
            "numpy": np.__version__,
            "threads": str(torch.get_num_threads()),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "mkldnn": str(torch.backends.mkldnn.is_available()),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "deterministic_algorithms": str(torch.are_deterministic_algorithms_enabled()),
        }
        if device.kind != "cpu":
            entries |= _accelerator_entries()
        entries |= {name: os.environ[name] for name in _SWITCHES if name in os.environ}
        return Environment(entries=entries)

    def supports(self, op: str, precision: str, device: Device) -> bool:
        """Whether the operation works on that device."""
        if op == "function":
            return precision in _FUNCTIONS
        if op.startswith("attention_"):
            return op.removeprefix("attention_") in _kernels(device, precision)
        if op != "matmul":
            is_known = precision in FORMATS and hasattr(torch, precision)
            return is_known and (op != "transfer_pinned" or device.kind != "cpu")
        return _can_multiply(precision, _address(device))

    def put(self, host: Host, device: Device) -> Array:
        """A copy of the bits."""
        fmt = FORMATS[name_of(host.dtype)]
        bits = np.ascontiguousarray(host).reshape(host.shape)
        if fmt.kind == "bool":
            return torch.from_numpy(bits.copy()).to(_address(device))
        carried = bits.view(np.dtype(f"{'u' if fmt.bits == 8 else ''}int{fmt.bits}"))
        tensor = torch.from_numpy(carried.copy()).view(getattr(torch, fmt.name))
        return tensor.to(_address(device))

    def get(self, array: Array) -> Host:
        """The bits on the host."""
        name = str(array.dtype).removeprefix("torch.")
        host = array.detach().cpu().contiguous()
        if name == "bool":
            return np.asarray(host.numpy())
        bits = host.view(_BITS_AS[FORMATS[name].bits]).numpy()
        return np.asarray(bits.view(np_dtype(name)))

    def words(self, array: Array) -> Array:
        """Row-major bytes as int64 words."""
        return digest_torch.words(array)

    def cast(self, array: Array, dtype: str, *, site: str) -> Array:
        """`Tensor.to`, rounded to nearest even."""
        return array.to(getattr(torch, dtype))

    def matmul(self, a: Array, b: Array, *, precision: str, out: str, site: str) -> Array:
        """The library's own kernel for that precision."""
        if not _can_multiply(precision, a.device):
            raise UnsupportedError(
                f"precision must be one that {a.device} computes, got {precision!r}. "
                "Ask `supports` first."
            )
        natural = PRECISIONS[precision].natural_output
        if out != natural:
            raise UnsupportedError(
                f"{precision} must give {natural}, got {out!r}. Cast the result instead."
            )
        if precision == "int8":
            return _by_matrix(torch._int_mm, a, b)
        if precision == "fp8":
            return _by_matrix(_scaled_mm, a, b)
        if a.device.type != "cpu":
            _choose_multiplier(precision)
        return torch.matmul(a, b)

    def elementwise(self, op: str, *arrays: Array, site: str) -> Array:
        """The torch function of that name in the array API."""
        return getattr(xtorch, op)(*arrays)

    def reduce(self, op: str, array: Array, *, axis: int, site: str) -> Array:
        """`sum`, `max` or `min` in the dtype of the array."""
        if op == "sum":
            return torch.sum(array, dim=axis, dtype=array.dtype)
        return getattr(torch, f"a{op}")(array, dim=axis)

    def rearrange(self, op: str, *arrays: Array, site: str) -> Array:
        """The torch function that does it."""
        return _REARRANGE[op](*arrays)

    def function(self, name: str, array: Array, *, site: str) -> Array:
        """The torch function of that name."""
        return _FUNCTIONS[name](array)

    def attention(
        self, q: Array, k: Array, v: Array, *, scale: float, kernel: str, site: str
    ) -> Array:
        """`scaled_dot_product_attention`, held to one kernel."""
        with sdpa_kernel(_KERNELS[kernel]):
            return functional.scaled_dot_product_attention(q, k, v, scale=scale)

    def attention_backward(
        self, q: Array, k: Array, v: Array, gradient: Array, *, scale: float, kernel: str, site: str
    ) -> tuple[Array, Array, Array]:
        """Gradients by autograd."""
        inputs = [x.detach().requires_grad_() for x in (q, k, v)]
        out = self.attention(*inputs, scale=scale, kernel=kernel, site=site)
        dq, dk, dv = torch.autograd.grad(out, inputs, gradient)
        return dq, dk, dv

    def copy(self, array: Array, device: Device, *, site: str, into: Array | None = None) -> Array:
        """A copy in fresh memory of `device`, or in that of `into`."""
        if into is None:
            return array.to(_address(device), copy=True)
        return into.copy_(array)

    def transfer(self, array: Array, device: Device, *, is_pinned: bool, site: str) -> Array:
        """To the host and back; on an accelerator by a stream of its own."""
        if device.kind == "cpu":
            return array.clone().clone()
        stream = torch.cuda.Stream(_address(device))
        stream.wait_stream(torch.cuda.current_stream(_address(device)))
        with torch.cuda.stream(stream):
            host = torch.empty_like(array, device="cpu", pin_memory=is_pinned)
            host.copy_(array, non_blocking=True)
            stream.synchronize()
            back = host.to(_address(device), non_blocking=True)
        stream.synchronize()
        return back

    def equal(self, actual: Array, expected: Array) -> bool:
        """Equality by value."""
        if actual.dtype.itemsize == 1 and actual.dtype.is_floating_point:
            actual, expected = actual.to(torch.float32), expected.to(torch.float32)
        return bool(torch.equal(actual, expected))

    def digest_many(self, arrays: Sequence[Array]) -> tuple[str, ...]:
        """Digests by the kernels in `digest_torch`, without waiting for a compiler."""
        return digest_torch.digest_many(arrays)

    def compile(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """`torch.compile`."""
        compiled: Callable[..., Any] = torch.compile(step)
        return compiled

    def synchronize(self, device: Device) -> None:
        """Wait for an accelerator."""
        if device.kind != "cpu":
            torch.cuda.synchronize(_address(device))

    def free_memory_bytes(self, device: Device) -> int:
        """Free memory of an accelerator, or the granted limit of the host."""
        if device.kind == "cpu":
            return grants.memory_limit_bytes() or 0
        free, _ = torch.cuda.mem_get_info(_address(device))
        return int(free)

    @contextmanager
    def deterministic(self) -> Iterator[None]:
        """`use_deterministic_algorithms`, restored afterwards."""
        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(mode=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before)


def _accelerators() -> tuple[Device, ...]:
    kind = "rocm" if torch.version.hip else "cuda"
    found = []
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        properties = torch.cuda.get_device_properties(index)
        uuid = str(getattr(properties, "uuid", ""))
        found.append(
            Device(
                id=f"{kind}:{index}",
                kind=kind,
                model=properties.name,
                serial=f"GPU-{uuid}" if uuid and kind == "cuda" else uuid,
                is_partial="MIG" in properties.name,
            )
        )
    return tuple(found)


def _accelerator_entries() -> dict[str, str]:
    matmul = torch.backends.cuda.matmul
    return {
        "cuda": str(torch.version.cuda),
        "hip": str(torch.version.hip),
        "cudnn": str(torch.backends.cudnn.version()),
        "bf16_reduced": str(matmul.allow_bf16_reduced_precision_reduction),
        "fp16_reduced": str(matmul.allow_fp16_reduced_precision_reduction),
    }


def _address(device: Device) -> torch.device:
    if device.kind == "cpu":
        return torch.device("cpu")
    return torch.device("cuda", int(device.id.rpartition(":")[2]))


def _can_multiply(precision: str, where: torch.device) -> bool:
    if precision not in PRECISIONS:
        return False
    if where.type == "cpu":
        return precision != "tf32"
    if precision == "tf32" and torch.version.hip:
        return False
    return torch.cuda.get_device_capability(where) >= _LEAST_CAPABILITY.get(precision, (0, 0))


def _kernels(device: Device, dtype: str) -> tuple[str, ...]:
    """Attention kernels that a device has for a dtype."""
    if dtype not in ("float32", "bfloat16", "float16"):
        return ()
    if device.kind == "cpu":
        return ("math", "flash")
    return ("math", "efficient") if dtype == "float32" else tuple(_KERNELS)


def _choose_multiplier(precision: str) -> None:
    """Make this process compute products as named; reduced-precision sums are switched off."""
    matmul = torch.backends.cuda.matmul
    matmul.allow_tf32 = precision == "tf32"
    matmul.allow_bf16_reduced_precision_reduction = False
    matmul.allow_fp16_reduced_precision_reduction = False


def _scaled_mm(a: Array, b: Array) -> Array:
    one = torch.ones((), device=a.device)
    # The library wants the second operand in column-major order.
    columns = b.t().contiguous().t()
    return torch._scaled_mm(a.contiguous(), columns, one, one, out_dtype=a.dtype)


def _by_matrix(multiply: Callable[[Array, Array], Array], a: Array, b: Array) -> Array:
    """A kernel for single matrices, applied along the leading axes."""
    if a.ndim == 2:
        return multiply(a, b)
    pairs = zip(a.flatten(0, -3), b.flatten(0, -3), strict=True)
    return torch.stack([multiply(x, y) for x, y in pairs]).reshape(*a.shape[:-1], b.shape[-1])
