# SPDX-License-Identifier: Apache-2.0
from collections.abc import Mapping
from pathlib import Path

from truestep.backends.telemetry import read as read_any
from truestep.backends.telemetry import sample
from truestep.backends.telemetry_cpu import read
from truestep.device import Device

CPU = "sys/devices/system/cpu"


def tree(root: Path, files: Mapping[str, str]) -> dict[str, Path]:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return {"sys_root": root / "sys", "proc_root": root / "proc"}


def socket_of(number: int, *cores: int) -> Device:
    units = tuple(f"core{core}" for core in cores)
    return Device(id=f"cpu:{number}", kind="cpu", model="m", units=units, firmware="0x2b")


def two_sockets(root: Path) -> dict[str, Path]:
    files = {
        "sys/class/hwmon/hwmon0/name": "nvme",
        "sys/class/hwmon/hwmon0/temp1_input": "90000",
        "proc/loadavg": "3.25 2.0 1.0 1/99 1234",
        "proc/interrupts": "        CPU0 CPU1 CPU2 CPU3\n"
        "  0:  9 9 9 9  IO-APIC timer\n"
        "MCE:  1 2 0 4  Machine check exceptions\n"
        "MCP:  7 7 7 7  Machine check polls",
        "sys/devices/system/edac/mc/mc0/ue_count": "1",
        "sys/devices/system/edac/mc/mc0/ce_count": "10",
        "sys/devices/system/edac/mc/mc1/ue_count": "2",
        "sys/devices/system/edac/mc/mc1/ce_count": "20",
    }
    for number in range(2):
        folder = f"sys/class/hwmon/hwmon{5 - number}"
        files[f"{folder}/name"] = "coretemp"
        files[f"{folder}/temp1_label"] = f"Package id {number}"
        files[f"{folder}/temp1_input"] = str(50000 + 1000 * number)
        files[f"{folder}/temp2_label"] = "Core 0"
        files[f"{folder}/temp2_input"] = str(60500 + 1000 * number)
    for cpu in range(4):
        folder = f"{CPU}/cpu{cpu}"
        files[f"{folder}/topology/physical_package_id"] = str(cpu // 2)
        files[f"{folder}/cpufreq/scaling_cur_freq"] = str(2000000 + 100000 * cpu)
        files[f"{folder}/thermal_throttle/core_throttle_count"] = str(cpu)
        files[f"{folder}/thermal_throttle/package_throttle_count"] = "100"
    return tree(root, files)


def test_each_socket_has_its_own_readings(tmp_path: Path) -> None:
    roots = two_sockets(tmp_path)
    first, second = read(socket_of(0, 0, 1), **roots), read(socket_of(1, 2, 3), **roots)
    assert (first["temperature_celsius"], second["temperature_celsius"]) == (60.5, 61.5)
    assert (first["machine_check_count"], second["machine_check_count"]) == (3, 4)
    assert (first["throttle_count"], second["throttle_count"]) == (101, 105)
    assert (first["clock_mhz"], second["clock_mhz"]) == (2050.0, 2250.0)


def test_counts_of_the_machine_are_summed_over_its_controllers(tmp_path: Path) -> None:
    readings = read(socket_of(0, 0), **two_sockets(tmp_path))
    assert readings["memory_uncorrected_count"] == 3
    assert readings["memory_corrected_count"] == 30
    assert readings["load"] == 3.25
    assert readings["microcode"] == "0x2b"


def test_clocks_are_of_the_granted_cores_only(tmp_path: Path) -> None:
    readings = read(socket_of(1, 3), **two_sockets(tmp_path))
    clocks = [readings[name] for name in ("clock_min_mhz", "clock_mhz", "clock_max_mhz")]
    assert clocks == [2300.0, 2300.0, 2300.0]


def test_clocks_fall_back_to_cpuinfo(tmp_path: Path) -> None:
    text = "processor : 0\ncpu MHz : 1800.5\n\nprocessor : 1\ncpu MHz : 2200.5"
    readings = read(socket_of(0, 0, 1), **tree(tmp_path, {"proc/cpuinfo": text}))
    assert readings["clock_mhz"] == 2000.5


def test_a_sensor_that_is_off_does_not_hide_the_others(tmp_path: Path) -> None:
    files = {"name": "k10temp", "temp1_input": "-273000", "temp2_input": "41000", "temp3_input": ""}
    roots = tree(tmp_path, {f"sys/class/hwmon/hwmon1/{name}": text for name, text in files.items()})
    assert read(socket_of(0), **roots)["temperature_celsius"] == 41.0


def test_a_thermal_zone_stands_in_for_a_sensor(tmp_path: Path) -> None:
    zone = "sys/class/thermal/thermal_zone"
    files = {f"{zone}0/type": "acpitz", f"{zone}0/temp": "99000"}
    files |= {f"{zone}1/type": "x86_pkg_temp", f"{zone}1/temp": "44000"}
    assert read(socket_of(0), **tree(tmp_path, files))["temperature_celsius"] == 44.0


def test_sensors_that_name_no_socket_are_used_only_when_they_are_as_many(tmp_path: Path) -> None:
    files = {f"{CPU}/cpu{cpu}/topology/physical_package_id": str(cpu) for cpu in range(2)}
    files |= {
        "sys/class/hwmon/hwmon0/name": "k10temp",
        "sys/class/hwmon/hwmon0/temp1_input": "1000",
    }
    roots = tree(tmp_path, files)
    assert "temperature_celsius" not in read(socket_of(0, 0), **roots)
    files = {"sys/class/hwmon/hwmon1/name": "k10temp", "sys/class/hwmon/hwmon1/temp1_input": "2000"}
    tree(tmp_path, files)
    assert read(socket_of(1, 1), **roots)["temperature_celsius"] == 2.0


def test_what_the_kernel_does_not_say_is_absent(tmp_path: Path) -> None:
    nothing = Device(id="cpu:0", kind="cpu", model="m")
    assert read(nothing, **tree(tmp_path, {})) == {}


def test_this_machine_gives_a_sample_with_its_load() -> None:
    assert "load" in sample(socket_of(0, 0)).readings


def test_a_simulated_device_and_an_unknown_kind_report_nothing() -> None:
    assert read_any(Device(id="cpu:0", kind="cpu", model="m", is_simulated=True)) == {}
    assert read_any(Device(id="abacus:0", kind="abacus", model="m")) == {}
