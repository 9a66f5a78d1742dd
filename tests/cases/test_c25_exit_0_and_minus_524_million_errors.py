# SPDX-License-Identifier: Apache-2.0
"""Exit 0 with every device faulty, OK with no work done, and counts that cannot be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from truestep.fleet.vendor_tools import Claim, read_output


def test_faulty_lines_are_faulty_whatever_the_exit_code() -> None:
    lines = [f"\tGPU {gpu}: FAULTY" for gpu in range(16)]
    found = read_output("\n".join(["Tested 16 GPUs:", *lines]).encode())
    assert found.claim is Claim.FAULTY
    assert found.devices == tuple(map(str, range(16)))


def test_ok_after_no_work_did_not_run() -> None:
    text = b"Couldn't init a GPU test\n100.0%  proc'd: 0 (0 Gflop/s)   errors: 0\nGPU 0: OK\n"
    assert read_output(text).claim is Claim.DID_NOT_RUN
    assert read_output(b"-1 processed, DIED\n").claim is Claim.DID_NOT_RUN
    assert read_output(b"GPU 0: OK\x00\x8f").claim is Claim.IMPLAUSIBLE
    assert read_output(b"").claim is Claim.DID_NOT_RUN


def test_the_same_negative_count_on_many_devices_is_no_bad_device() -> None:
    lines = [f"GPU {n}: errors: {-524_288_000 if n < 9 else 0} (5100 Gflop/s)" for n in range(16)]
    found = read_output("\n".join(lines).encode())
    assert found.claim is Claim.IMPLAUSIBLE
    assert found.devices == ()


def test_a_device_that_is_sound_among_faulty_ones_is_not_named() -> None:
    found = read_output(b"5100 Gflop/s\nGPU 0: OK\nGPU 1: FAULTY\n")
    assert (found.claim, found.devices) == (Claim.FAULTY, ("1",))


@given(st.binary(max_size=400))
def test_any_bytes_are_read(raw: bytes) -> None:
    assert read_output(raw).claim in Claim


@given(st.lists(st.sampled_from(["GPU 0: OK", "aborted", "FAILED", "errors: 3", "0 Gflop/s", ""])))
def test_sound_needs_good_and_nothing_else(lines: list[str]) -> None:
    is_sound = set(lines) - {""} == {"GPU 0: OK"}
    assert (read_output("\n".join(lines).encode()).claim is Claim.SOUND) == is_sound


def test_a_later_line_hides_neither_an_impossible_count_nor_a_device_without_work() -> None:
    hidden = b"GPU 0: errors: -524288000 (5100 Gflop/s)\nGPU 0: errors: 0 (5100 Gflop/s)\nGPU 0: OK"
    assert read_output(hidden).claim is Claim.IMPLAUSIBLE
    idle = b"GPU 0: 5100 Gflop/s, OK\nGPU 1: 0 Gflop/s, OK\n"
    assert read_output(idle).claim is Claim.DID_NOT_RUN
    warming_up = b"GPU 0: 0 Gflop/s\nGPU 0: 5100 Gflop/s, OK\n"
    assert read_output(warming_up).claim is Claim.SOUND
