# SPDX-License-Identifier: Apache-2.0
"""What the driver would report of four GPUs, loaded by name in the sampler's process."""

from truestep.device import Device


def four_gpus(device: Device) -> dict[str, float | str]:
    return {
        "sim:0": {"rows_remap_failure": 1.0},
        "sim:1": {"rows_remap_pending": "yes"},
        "sim:2": {"recovery_action": "Reset", "overall": "Healthy"},
        "sim:3": {"rows_remap_failure": "N/A", "recovery_action": "[Not Supported]"},
    }[device.id]


def pending(device: Device) -> dict[str, float | str]:
    return {"rows_remap_pending": 1.0}
