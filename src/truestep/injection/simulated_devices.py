# SPDX-License-Identifier: Apache-2.0
"""Devices with invented serials, computed by the host: a rehearsal without many devices."""

from __future__ import annotations

from typing import Any

from truestep.backends.protocol import Backend
from truestep.device import Device


class SimulatedDevices:
    """A backend that shows `num` invented devices and computes on the host for all of them."""

    def __init__(self, inner: Backend, num: int) -> None:
        self.inner = inner
        self.num = num

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def devices(self) -> tuple[Device, ...]:
        """`sim:0`, `sim:1`, ... with serials `SIM-0000`, ..., marked simulated."""
        return tuple(
            Device(
                id=f"sim:{i}",
                kind="cpu",
                model="simulated device",
                serial=f"SIM-{i:04d}",
                is_simulated=True,
            )
            for i in range(self.num)
        )
