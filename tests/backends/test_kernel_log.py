# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from truestep.backends.kernel_log import parse_dmesg, read_kernel_log
from truestep.context import encode_reversibly

XID_LINE = b"NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus."


def test_c36_an_xid_after_a_byte_that_is_no_text_is_found() -> None:
    line = b"[ 12.5] temp 40\xb5C \\ " + XID_LINE
    (error,) = parse_dmesg(b"first\r\n" + line + b"\nlast\xff")
    assert (error.pci, error.xid) == ("0000:3b:00", 79)
    assert encode_reversibly(error.line) == line
    assert "40\\xb5C" in error.line


@given(st.binary(max_size=30), st.binary(max_size=30))
def test_no_bytes_around_it_hide_an_xid(before: bytes, after: bytes) -> None:
    errors = parse_dmesg(before + XID_LINE + after)
    assert [error.xid for error in errors] == [79]


@given(st.binary(max_size=200))
def test_no_bytes_raise(raw: bytes) -> None:
    parse_dmesg(raw)


def test_forms_of_older_and_newer_drivers_are_understood() -> None:
    raw = (
        b"NVRM: Xid (0000:03:00): 31, Ch 0\n"
        b"NVRM: Xid (PCI:00000001:C1:00.0): 120, GSP task exception\n"
        b"nvidia-nvswitch3: SXid (PCI:0000:b4:00.0): 12028, Non-fatal\n"
        b"NVRM: loading module\n"
    )
    found = [(error.pci, error.xid) for error in parse_dmesg(raw)]
    assert found == [("0000:03:00", 31), ("0001:c1:00", 120)]


def test_the_log_is_read_without_waiting(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_bytes(XID_LINE)
    assert read_kernel_log(path) == XID_LINE
    read_kernel_log()


def test_a_log_that_may_not_be_read_is_none_and_not_empty(tmp_path: Path) -> None:
    assert read_kernel_log(tmp_path / "missing") is None
