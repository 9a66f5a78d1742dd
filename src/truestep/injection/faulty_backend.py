# SPDX-License-Identifier: Apache-2.0
"""A wrapper round any backend that plants faults beneath whoever checks its results."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from truestep.backends.protocol import Array, Backend
from truestep.device import Device
from truestep.fault import Fault
from truestep.injection.patterns import corrupt
from truestep.numerics.mixing import WORD, derive


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """One call that was hit: where, and whether the bits really changed."""

    site: str
    call: int
    index: int
    is_changed: bool


class FaultyBackend:
    """Gives what the wrapped backend gives, with faults in the results of its operations.

    Args:
        inner: Backend that computes.
        faults: What to plant; those of other devices and units are ignored.
        device, unit: Where this process computes.

    Guarantees:
        The same faults and calls give the same damage; without a hit the inner result is handed
        on untouched. `activations` lists every hit.
    """

    def __init__(
        self, inner: Backend, faults: Sequence[Fault], *, device: Device, unit: str = ""
    ) -> None:
        self.inner = inner
        self.faults = tuple(faults)
        self.device = device
        self.unit = unit
        self.activations: list[Activation] = []
        self._calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def cast(self, array: Array, dtype: str, *, site: str) -> Array:
        """The inner cast, then the faults of `site`."""
        return self._hit(site, self.inner.cast(array, dtype, site=site))

    def matmul(self, a: Array, b: Array, *, precision: str, out: str, site: str) -> Array:
        """The inner product, then the faults of `site`."""
        return self._hit(site, self.inner.matmul(a, b, precision=precision, out=out, site=site))

    def elementwise(self, op: str, *arrays: Array, site: str) -> Array:
        """The inner operation, then the faults of `site`."""
        return self._hit(site, self.inner.elementwise(op, *arrays, site=site))

    def reduce(self, op: str, array: Array, *, axis: int, site: str) -> Array:
        """The inner reduction, then the faults of `site`."""
        return self._hit(site, self.inner.reduce(op, array, axis=axis, site=site))

    def rearrange(self, op: str, *arrays: Array, site: str) -> Array:
        """The inner operation, then the faults of `site`."""
        return self._hit(site, self.inner.rearrange(op, *arrays, site=site))

    def function(self, name: str, array: Array, *, site: str) -> Array:
        """The inner function, then the faults of `site`."""
        return self._hit(site, self.inner.function(name, array, site=site))

    def attention(self, q: Array, k: Array, v: Array, *, site: str, **how: Any) -> Array:
        """The inner attention, then the faults of `site`."""
        return self._hit(site, self.inner.attention(q, k, v, site=site, **how))

    def attention_backward(
        self, q: Array, k: Array, v: Array, gradient: Array, *, site: str, **how: Any
    ) -> tuple[Array, Array, Array]:
        """The inner gradients, then the faults of `<site>/dq`, `/dk` and `/dv`."""
        dq, dk, dv = self.inner.attention_backward(q, k, v, gradient, site=site, **how)
        return (
            self._hit(f"{site}/dq", dq),
            self._hit(f"{site}/dk", dk),
            self._hit(f"{site}/dv", dv),
        )

    def transfer(self, array: Array, device: Device, *, is_pinned: bool, site: str) -> Array:
        """The inner transfer, then the faults of `site`."""
        return self._hit(site, self.inner.transfer(array, device, is_pinned=is_pinned, site=site))

    def copy(self, array: Array, device: Device, *, site: str, into: Array | None = None) -> Array:
        """The inner copy, then the faults of `site`."""
        copied = self.inner.copy(array, device, site=site, into=into)
        return self._hit(site, copied, device)

    def _hit(self, site: str, result: Array, holder: Device | None = None) -> Array:
        call = self._calls[site]
        self._calls[site] += 1
        for order, fault in enumerate(self.faults):
            if not fault.hits(device=self.device.id, unit=self.unit, site=site, call=call):
                continue
            draw = derive(fault.seed, order, zlib.crc32(site.encode()), call)
            if draw >= fault.rate * WORD:
                continue
            host = self.inner.get(result)
            if host.size == 0:
                continue
            damaged, index, is_changed = corrupt(host, fault, draw=draw)
            self.activations.append(
                Activation(site=site, call=call, index=index, is_changed=is_changed)
            )
            result = self.inner.put(damaged, holder or self.device)
        return result
