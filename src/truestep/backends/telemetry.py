# SPDX-License-Identifier: Apache-2.0
"""What a device says of itself now, whoever made it."""

from __future__ import annotations

import time
from collections.abc import Callable

from truestep.backends import telemetry_amd, telemetry_cpu, telemetry_neuron, telemetry_nvidia
from truestep.backends.readings import Readings
from truestep.context import Sample
from truestep.device import Device

_READERS: dict[str, Callable[[Device], Readings]] = {
    "cpu": telemetry_cpu.read,
    "cuda": telemetry_nvidia.read,
    "rocm": telemetry_amd.read,
    "xla": telemetry_neuron.read,
}


def read(device: Device) -> Readings:
    """The readings of a device, by name with the unit; what is absent was not reported.

    May wait on a driver for ever: `sampler.Sampler` calls it in a process of its own. GPU paths
    are not yet run on a GPU.
    """
    if device.is_simulated or device.kind not in _READERS:
        return {}
    return _READERS[device.kind](device)


def sample(device: Device) -> Sample:
    """The readings of a device with the time at which they were asked for."""
    time_s = time.time()
    return Sample(time_s=time_s, readings=read(device))
