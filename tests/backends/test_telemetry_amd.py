# SPDX-License-Identifier: Apache-2.0
from types import SimpleNamespace
from typing import Any

from truestep.backends.telemetry_amd import handle_of, read
from truestep.device import Device

GPU = Device(id="rocm:0", kind="rocm", model="m", serial="aaff74a1-0000-1000-80f1-1234")


def fake_amdsmi(**answers: Any) -> SimpleNamespace:
    known: dict[str, Any] = {
        "processor_handles": lambda: ["other", "gpu"],
        "gpu_device_uuid": lambda handle: {"gpu": GPU.serial.upper(), "other": "ffff"}[handle],
    }
    known |= answers
    return SimpleNamespace(
        AmdSmiTemperatureType=SimpleNamespace(HOTSPOT=1),
        AmdSmiTemperatureMetric=SimpleNamespace(CURRENT=0),
        AmdSmiClkType=SimpleNamespace(GFX=0, MEM=4),
        **{f"amdsmi_get_{name}": call for name, call in known.items()},
    )


def test_a_gpu_that_reports_all_has_all_readings() -> None:
    vendor = fake_amdsmi(
        temp_metric=lambda handle, kind, metric: 66,
        power_info=lambda handle: {"current_socket_power": "N/A", "average_socket_power": 551},
        clock_info=lambda handle, kind: {"clk": {0: 2100, 4: 1300}[kind]},
        gpu_total_ecc_count=lambda handle: {"correctable_count": 2, "uncorrectable_count": 1},
        gpu_activity=lambda handle: {"gfx_activity": 99},
        gpu_bad_page_info=lambda handle: [{}, {}],
        gpu_vbios_info=lambda handle: {"version": "113-M3"},
        violation_status=lambda handle: {
            "active_ppt_pwr": True,
            "active_hbm_thrm": False,
            "active_vr_thrm": "N/A",
        },
    )
    assert read(GPU, vendor=vendor) == {
        "temperature_celsius": 66,
        "power_watts": 551,
        "clock_mhz": 2100,
        "memory_clock_mhz": 1300,
        "ecc_corrected_count": 2,
        "ecc_uncorrected_count": 1,
        "utilisation_percent": 99,
        "bad_pages_count": 2,
        "vbios": "113-M3",
        "throttle_reasons": "ppt pwr",
    }


def test_what_the_driver_refuses_or_leaves_blank_is_absent() -> None:
    blank = fake_amdsmi(
        temp_metric=lambda handle, kind, metric: 65535,
        power_info=lambda handle: {
            "current_socket_power": "N/A",
            "average_socket_power": 0xFFFFFFFF,
        },
        gpu_activity=lambda handle: {"gfx_activity": 65535},
        violation_status=lambda handle: {"active_ppt_pwr": "N/A"},
    )
    assert read(GPU, vendor=fake_amdsmi()) == {}
    assert read(GPU, vendor=blank) == {}


def test_an_unknown_device_reports_nothing() -> None:
    for serial in ("", "1234"):
        device = Device(id="rocm:0", kind="rocm", model="m", serial=serial)
        assert handle_of(device, vendor=fake_amdsmi()) is None
        assert read(device, vendor=fake_amdsmi()) == {}
