# SPDX-License-Identifier: Apache-2.0
import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from truestep.backends.telemetry_nvidia import (
    RECOVERY_ACTIONS,
    THROTTLE_REASONS,
    handle_of,
    name_of,
    read,
)
from truestep.context import encode_reversibly
from truestep.device import Device

GPU = Device(id="cuda:0", kind="cuda", model="m", serial="GPU-aa-bb")
XID_LOG = b"NVRM: Xid (PCI:0000:3b:00): 48, DBE\nNVRM: Xid (PCI:0000:5e:00): 79, lost\n"


def decoding(call: Callable[..., bytes]) -> Callable[..., str]:
    """As the library wraps its calls that give text."""

    @functools.wraps(call)
    def wrapper(*arguments: Any) -> str:
        return call(*arguments).decode()

    return wrapper


def field(value: int, *, status: int = 0) -> SimpleNamespace:
    return SimpleNamespace(nvmlReturn=status, value=SimpleNamespace(uiVal=value))


def fake_nvml(**answers: Any) -> SimpleNamespace:
    """A GPU that answers by the names of the calls; what is not answered raises."""
    place = SimpleNamespace(domain=0, bus=0x3B, device=0)
    known: dict[str, Callable[..., Any]] = {
        "HandleByUUID": lambda uuid: {"GPU-aa-bb": "gpu", "MIG-1": "slice"}[uuid],
        "DeviceHandleFromMigDeviceHandle": lambda handle: {"slice": "gpu"}[handle],
        "PciInfo": lambda handle: place,
        "Name": decoding(lambda handle: b"Accelerator X"),
        "VbiosVersion": decoding(lambda handle: b"96.00.5E.00.01"),
    }
    known |= answers
    return SimpleNamespace(**{f"nvmlDeviceGet{name}": call for name, call in known.items()})


def full_nvml() -> SimpleNamespace:
    ecc = {(0, 0): 5, (1, 0): 1, (0, 1): 50, (1, 1): 2}
    return fake_nvml(
        Temperature=lambda handle, sensor: 61,
        PowerUsage=lambda handle: 412500,
        ClockInfo=lambda handle, kind: {1: 1755, 2: 2619}[kind],
        CurrentClocksEventReasons=lambda handle: 0x24,
        UtilizationRates=lambda handle: SimpleNamespace(gpu=97, memory=40),
        TotalEccErrors=lambda handle, kind, counter: ecc[kind, counter],
        RemappedRows=lambda handle: (3, 1, 1, 0),
        MigMode=lambda handle: [0, 0],
        FieldValues=lambda handle, ids: [field({230: 1, 82: 84}[ids[0]])],
    )


def test_a_gpu_that_reports_all_has_all_readings() -> None:
    assert read(GPU, vendor=full_nvml(), kernel_log=lambda: XID_LOG) == {
        "temperature_celsius": 61,
        "memory_temperature_celsius": 84,
        "power_watts": 412.5,
        "clock_mhz": 1755,
        "memory_clock_mhz": 2619,
        "throttle_reasons": "sw power cap, sw thermal slowdown",
        "utilisation_percent": 97,
        "memory_utilisation_percent": 40,
        "vbios": "96.00.5E.00.01",
        "mig_mode": "off",
        "ecc_corrected_count": 5,
        "ecc_uncorrected_count": 1,
        "ecc_corrected_lifetime_count": 50,
        "ecc_uncorrected_lifetime_count": 2,
        "rows_remapped_corrected": 3,
        "rows_remapped_uncorrected": 1,
        "rows_remapped": 4,
        "rows_remap_pending": 1,
        "rows_remap_failure": 0,
        "recovery_action": "gpu reset",
        "xid_count": 1,
        "last_xid": 48,
    }


def test_what_the_driver_refuses_is_absent() -> None:
    assert read(GPU, vendor=fake_nvml(), kernel_log=lambda: None) == {"vbios": "96.00.5E.00.01"}


def test_sentinels_of_the_driver_are_absent() -> None:
    vendor = fake_nvml(
        Temperature=lambda handle, sensor: 0xFFFFFFFF,
        PowerUsage=lambda handle: 0x7FFFFFF2,
        ClockInfo=lambda handle, kind: 2147483647,
        TotalEccErrors=lambda handle, kind, counter: 0x7FFFFFFFFFFFFFF1,
        RemappedRows=lambda handle: (0xFFFFFFFF,) * 4,
        FieldValues=lambda handle, ids: [field(2147483647)],
        VbiosVersion=decoding(lambda handle: b"N/A"),
    )
    assert read(GPU, vendor=vendor, kernel_log=lambda: None) == {}


def test_a_recovery_action_that_could_not_be_read_is_absent() -> None:
    vendor = fake_nvml(FieldValues=lambda handle, ids: [field(0, status=3)])
    assert "recovery_action" not in read(GPU, vendor=vendor, kernel_log=lambda: None)


def test_a_readable_log_without_an_xid_of_this_gpu_counts_none() -> None:
    readings = read(GPU, vendor=fake_nvml(), kernel_log=lambda: b"all is well\n")
    assert readings["xid_count"] == 0
    assert "last_xid" not in readings


def test_c36_a_name_that_is_no_text_is_kept_reversibly() -> None:
    raw = b"\xf8\x95 Accelerator \\ X"
    vendor = fake_nvml(
        Name=decoding(lambda handle: raw), VbiosVersion=decoding(lambda handle: b"9\xff")
    )
    with pytest.raises(UnicodeDecodeError):
        vendor.nvmlDeviceGetName("gpu")
    assert encode_reversibly(name_of("gpu", vendor=vendor)) == raw
    assert read(GPU, vendor=vendor, kernel_log=lambda: None)["vbios"] == "9\\xff"


def test_a_device_without_a_serial_is_not_read_by_its_index() -> None:
    assert read(Device(id="cuda:0", kind="cuda", model="m"), vendor=full_nvml()) == {}


def test_a_uuid_without_prefix_finds_the_gpu_and_a_slice_finds_its_gpu() -> None:
    for serial in ("aa-bb", "GPU-aa-bb", "MIG-1"):
        device = Device(id="cuda:0", kind="cuda", model="m", serial=serial)
        assert handle_of(device, vendor=fake_nvml()) == "gpu"


def test_an_unknown_uuid_reports_nothing() -> None:
    device = Device(id="cuda:0", kind="cuda", model="m", serial="GPU-none")
    assert read(device, vendor=full_nvml(), kernel_log=lambda: XID_LOG) == {}


def test_older_libraries_name_the_reasons_otherwise() -> None:
    vendor = fake_nvml(CurrentClocksThrottleReasons=lambda handle: 0)
    assert read(GPU, vendor=vendor, kernel_log=lambda: None)["throttle_reasons"] == "none"


def test_the_names_agree_with_the_library() -> None:
    pynvml = pytest.importorskip("pynvml")
    assert pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION == 230
    assert pynvml.NVML_FI_DEV_MEMORY_TEMP == 82
    for number, words in enumerate(RECOVERY_ACTIONS):
        name = words.replace(" ", "_").upper()
        assert getattr(pynvml, f"NVML_GPU_RECOVERY_ACTION_{name}") == number
    for bit, words in enumerate(THROTTLE_REASONS):
        name = words.title().replace(" ", "")
        assert getattr(pynvml, f"nvmlClocksEventReason{name}") == 1 << bit
    calls = (
        "HandleByUUID DeviceHandleFromMigDeviceHandle PciInfo Name VbiosVersion Temperature "
        "PowerUsage ClockInfo CurrentClocksEventReasons CurrentClocksThrottleReasons "
        "UtilizationRates TotalEccErrors RemappedRows MigMode FieldValues ComputeRunningProcesses"
    )
    assert all(hasattr(pynvml, f"nvmlDeviceGet{call}") for call in calls.split())
    assert hasattr(pynvml.nvmlDeviceGetName, "__wrapped__")
    constants = (pynvml.NVML_TEMPERATURE_GPU, pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM)
    assert constants == (0, 1, 2)
