# SPDX-License-Identifier: Apache-2.0
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truestep.backends.inventory import (
    is_placeholder,
    smt_siblings,
    socket_cpus,
    sockets,
    this_node,
)

CPUINFO = """\
processor\t: {cpu}
model name\t: Fast Processor 9000
microcode\t: 0x{revision}
physical id\t: {package}
cpu MHz\t\t: 2100.5
"""


def tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def two_sockets(root: Path) -> Path:
    """Two sockets of two cores with two threads each; package ids 0 and 36."""
    files = {}
    blocks = []
    for cpu in range(8):
        package = 0 if cpu % 4 < 2 else 36
        folder = f"sys/devices/system/cpu/cpu{cpu}/topology"
        files[f"{folder}/physical_package_id"] = str(package)
        files[f"{folder}/thread_siblings_list"] = f"{cpu % 4},{cpu % 4 + 4}"
        blocks.append(
            CPUINFO.format(cpu=cpu, revision="2b" if package == 0 else "2c", package=package)
        )
    files["proc/cpuinfo"] = "\n".join(blocks)
    files["sys/class/dmi/id/board_serial"] = "BRD42"
    return tree(root, files)


def roots(root: Path) -> dict[str, Path]:
    return {"sys_root": root / "sys", "proc_root": root / "proc"}


def test_each_socket_is_one_device_with_its_own_cores(tmp_path: Path) -> None:
    first, second = sockets(**roots(two_sockets(tmp_path)), granted=range(8))
    assert (first.id, second.id) == ("cpu:0", "cpu:1")
    assert first.units == ("core0", "core1", "core4", "core5")
    assert second.units == ("core2", "core3", "core6", "core7")
    assert (first.serial, second.serial) == ("BRD42/socket0", "BRD42/socket1")
    assert (first.firmware, second.firmware) == ("0x2b", "0x2c")
    assert first.model == "Fast Processor 9000"
    assert first.kind == "cpu"
    assert not first.is_partial
    assert not second.is_partial


def test_only_granted_cores_are_units_and_the_device_says_it_is_partial(tmp_path: Path) -> None:
    first, second = sockets(**roots(two_sockets(tmp_path)), granted=[1, 2, 3, 6, 7])
    assert first.units == ("core1",)
    assert first.is_partial
    assert not second.is_partial


def test_a_socket_without_a_granted_core_is_no_device_and_numbers_stay(tmp_path: Path) -> None:
    (only,) = sockets(**roots(two_sockets(tmp_path)), granted=[2])
    assert only.id == "cpu:1"
    assert only.serial == "BRD42/socket1"


def test_no_granted_core_gives_no_device(tmp_path: Path) -> None:
    assert sockets(**roots(two_sockets(tmp_path)), granted=[]) == ()


def test_siblings_name_the_units_that_share_a_core(tmp_path: Path) -> None:
    siblings = smt_siblings(sys_root=two_sockets(tmp_path) / "sys")
    assert siblings["core1"] == siblings["core5"] == ("core1", "core5")


def test_topology_falls_back_to_cpuinfo(tmp_path: Path) -> None:
    blocks = [CPUINFO.format(cpu=cpu, revision="1", package=cpu // 2) for cpu in range(4)]
    tree(tmp_path, {"proc/cpuinfo": "\n".join(blocks)})
    assert socket_cpus(**roots(tmp_path)) == {0: (0, 1), 1: (2, 3)}


def test_with_nothing_reported_there_is_one_weak_socket(tmp_path: Path) -> None:
    (only,) = sockets(**roots(tmp_path), granted=[3, 4])
    assert only.units == ("core3", "core4")
    assert only.is_weak
    assert only.model


def test_a_package_id_of_minus_one_is_one_socket(tmp_path: Path) -> None:
    name = "sys/devices/system/cpu/cpu{}/topology/physical_package_id"
    tree(tmp_path, {name.format(cpu): "-1" for cpu in range(2)})
    assert socket_cpus(**roots(tmp_path)) == {0: (0, 1)}


def test_this_machine_has_a_socket() -> None:
    assert sockets()


@pytest.mark.parametrize(
    "serial",
    [
        "",
        "Not Specified",
        "To be filled by O.E.M.",
        "None",
        "0",
        "0000000000",
        "Default string",
        "00000000-0000-0000-0000-000000000000",
        "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
        " .......... ",
    ],
)
def test_a_placeholder_is_no_serial(serial: str, tmp_path: Path) -> None:
    tree(tmp_path, {"class/dmi/id/board_serial": serial})
    node = this_node(env={}, sys_root=tmp_path, etc_root=tmp_path)
    assert node.board_serial == ""
    assert node.is_weak


def test_the_next_serial_stands_in_for_a_placeholder(tmp_path: Path) -> None:
    files = {"board_serial": "Default string", "product_serial": "None", "product_uuid": "4c4c-51"}
    tree(tmp_path, {f"class/dmi/id/{name}": text for name, text in files.items()})
    assert this_node(env={}, sys_root=tmp_path, etc_root=tmp_path).board_serial == "4c4c-51"


@given(st.from_regex(r"\A[A-Z]{3}[0-9]{6}[A-F]{2}\Z"))
def test_a_real_looking_serial_is_no_placeholder(serial: str) -> None:
    assert not is_placeholder(serial)


def test_the_scheduler_names_the_node(tmp_path: Path) -> None:
    tree(tmp_path, {"machine-id": "abc123"})
    node = this_node(env={"SLURMD_NODENAME": "gpu-017"}, sys_root=tmp_path, etc_root=tmp_path)
    assert (node.name, node.machine_id) == ("gpu-017", "abc123")


def test_without_a_scheduler_the_host_name_is_the_name(tmp_path: Path) -> None:
    node = this_node(env={}, sys_root=tmp_path, etc_root=tmp_path)
    assert node.name == socket.gethostname()
    assert node.machine_id == ""


def test_a_serial_that_is_no_text_is_kept_reversibly(tmp_path: Path) -> None:
    path = tmp_path / "class/dmi/id/board_serial"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"AB\xff12\n")
    node = this_node(env={}, sys_root=tmp_path, etc_root=tmp_path)
    assert node.board_serial == "AB\\xff12"


def test_inventory_and_telemetry_load_neither_numpy_nor_torch() -> None:
    names = "inventory grants device_lock telemetry telemetry_files sampler"
    script = "; ".join(f"import truestep.backends.{name}" for name in names.split())
    check = f"import sys; {script}; sys.exit('numpy' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False, timeout=60).returncode == 0
