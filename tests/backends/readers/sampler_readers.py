# SPDX-License-Identifier: Apache-2.0
"""Readers that a sampler's child loads by name, and a child that cannot be ended."""

import os
import sys
import time
from multiprocessing.context import SpawnContext, SpawnProcess

from truestep.device import Device


def steady(device: Device) -> dict[str, float | str]:
    return {"temperature_celsius": 40.0, "pid": float(os.getpid()), "of": device.id}


def heavy_modules(device: Device) -> dict[str, float | str]:
    return {"loaded": ",".join(name for name in ("torch", "numpy") if name in sys.modules)}


def hanging(device: Device) -> dict[str, float | str]:
    time.sleep(3600)
    return {}


def hanging_later(device: Device) -> dict[str, float | str]:
    steady_calls.append(device.id)
    if len(steady_calls) > 2:
        time.sleep(3600)
    return steady(device)


def dying(device: Device) -> dict[str, float | str]:
    os._exit(9)


def raising(device: Device) -> dict[str, float | str]:
    raise OSError("the driver is gone")


def not_a_number(device: Device) -> dict[str, float | str]:
    return {"temperature_celsius": float("nan")}


def noisy(device: Device) -> dict[str, float | str]:
    sys.stdout.write("noise on the output of the parent\n")
    sys.stdout.flush()
    os.write(1, b"noise on its descriptor\n")
    return steady(device)


def large(device: Device) -> dict[str, float | str]:
    return {"text": "x" * 300_000}


steady_calls: list[str] = []


class UnkillableProcess(SpawnProcess):
    def kill(self) -> None:
        """As for a process that is stuck in a driver."""

    def terminate(self) -> None:
        """As for a process that is stuck in a driver."""


class UnkillableContext(SpawnContext):
    Process = UnkillableProcess
