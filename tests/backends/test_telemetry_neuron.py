# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

from truestep.backends.telemetry_neuron import read, readings_from_monitor
from truestep.device import Device

CHIP = Device(id="xla:0", kind="xla", model="m", serial="DF1234")
REPORT = {
    "system_data": {
        "neuron_hw_counters": {
            "neuron_devices": [
                {"neuron_device_index": 0, "mem_ecc_corrected": 1, "mem_ecc_uncorrected": 0},
                {
                    "neuron_device_index": 1,
                    "mem_ecc_corrected": 2,
                    "mem_ecc_uncorrected": 1,
                    "sram_ecc_uncorrected": 4,
                },
            ]
        }
    }
}


def test_uncorrected_errors_of_all_memories_are_summed(tmp_path: Path) -> None:
    for number, serial in enumerate(("aaaa", "df1234")):
        folder = tmp_path / f"devices/virtual/neuron_device/neuron{number}"
        (folder / "info").mkdir(parents=True)
        (folder / "info/serial_number").write_text(serial)
        (folder / "stats/hardware").mkdir(parents=True)
        (folder / "stats/hardware/mem_ecc_uncorrected").write_text(str(number))
        (folder / "stats/hardware/sram_ecc_uncorrected").write_text("2\n")
    assert read(CHIP, sys_root=tmp_path) == {"ecc_uncorrected_count": 3}


def test_without_a_driver_nothing_is_reported(tmp_path: Path) -> None:
    assert read(CHIP, sys_root=tmp_path) == {}


def test_a_report_of_one_period_is_no_running_counter() -> None:
    readings = readings_from_monitor(REPORT, index=1)
    assert readings == {"ecc_corrected_in_period_count": 2, "ecc_uncorrected_in_period_count": 5}


def test_a_damaged_report_reports_nothing() -> None:
    for report in (None, [], {"system_data": None}, {"system_data": {"neuron_hw_counters": []}}):
        assert readings_from_monitor(report, index=0) == {}
