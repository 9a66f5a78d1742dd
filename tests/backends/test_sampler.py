# SPDX-License-Identifier: Apache-2.0
import contextlib
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.context import BaseContext
from pathlib import Path

import pytest

from truestep.backends.sampler import Sampler
from truestep.device import Device

READERS = Path(__file__).parent / "readers"
DEVICES = [Device(id=f"cpu:{number}", kind="cpu", model="m") for number in range(2)]
LONG_S = 20.0
FOR_EVER_S = 3600.0


@pytest.fixture(autouse=True)
def _readers_can_be_loaded() -> Iterator[None]:
    sys.path.insert(0, str(READERS))
    yield
    sys.path.remove(str(READERS))


@pytest.fixture(params=["spawn", "forkserver"])
def context(request: pytest.FixtureRequest) -> BaseContext:
    return multiprocessing.get_context(request.param)


def sampler(context: BaseContext, reader: str, *, period_s: float = 1.0) -> Sampler:
    return Sampler(DEVICES, context=context, reader=f"sampler_readers:{reader}", period_s=period_s)


def is_alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_a_sample_is_of_the_device_and_later_than_the_question(context: BaseContext) -> None:
    with sampler(context, "steady", period_s=60.0) as child:
        for device in DEVICES:
            asked_s = time.time()
            found = child.now(device.id, limit_s=LONG_S)
            assert found is not None
            assert found.time_s >= asked_s - 0.01
            assert found.readings["of"] == device.id
            assert found.readings["pid"] != os.getpid()


def test_all_devices_are_sampled_each_period(context: BaseContext) -> None:
    with sampler(context, "steady", period_s=0.05) as child:
        first = child.now("cpu:0", limit_s=LONG_S)
        assert first is not None
        start_s, end_s = first.time_s, math.inf
        deadline_s = time.monotonic() + LONG_S
        while time.monotonic() < deadline_s and any(
            len(child.window(device.id, start_s, end_s)) < 2 for device in DEVICES
        ):
            time.sleep(0.02)
        for device in DEVICES:
            kept = child.window(device.id, start_s, end_s)
            assert len(kept) >= 2
            assert all(start_s <= sample.time_s <= end_s for sample in kept)
            assert [sample.time_s for sample in kept] == sorted(s.time_s for s in kept)
        assert child.window("cpu:9", start_s, end_s) == ()
        assert child.now("cpu:9", limit_s=LONG_S) is None


def test_a_hanging_reader_blocks_nobody_beyond_the_limit(context: BaseContext) -> None:
    child = sampler(context, "hanging")
    assert child.now("cpu:0", limit_s=0.2) is None
    child.drain()
    assert child.window("cpu:0", 0.0, math.inf) == ()
    pid = child._process.pid
    child.close()
    wait_until_gone(pid)


def wait_until_gone(pid: int) -> None:
    end_s = time.monotonic() + 5
    while is_alive(pid) and time.monotonic() < end_s:
        time.sleep(0.02)
    assert not is_alive(pid)


def test_what_was_sampled_before_a_hang_is_kept(context: BaseContext) -> None:
    with sampler(context, "hanging_later", period_s=0.05) as child:
        deadline_s = time.monotonic() + LONG_S
        while not child.window("cpu:1", 0.0, math.inf) and time.monotonic() < deadline_s:
            time.sleep(0.02)
        assert child.now("cpu:0", limit_s=0.1) is None
        assert len(child.window("cpu:0", 0.0, math.inf)) == 1


def test_a_dying_reader_is_not_reported_and_raises_nothing(context: BaseContext) -> None:
    with sampler(context, "dying") as child:
        assert child.now("cpu:0", limit_s=FOR_EVER_S) is None
        assert not child.is_running
        assert child.now("cpu:0") is None
        assert child.window("cpu:0", 0.0, math.inf) == ()
        child.drain()


def test_a_child_killed_from_outside_is_not_reported(context: BaseContext) -> None:
    with sampler(context, "steady", period_s=60.0) as child:
        found = child.now("cpu:0", limit_s=LONG_S)
        assert found is not None
        os.kill(int(found.readings["pid"]), signal.SIGKILL)
        assert child.now("cpu:0", limit_s=LONG_S) is None
        assert len(child.window("cpu:0", 0.0, math.inf)) >= 1


def test_a_stopped_child_blocks_nobody(context: BaseContext) -> None:
    with sampler(context, "steady", period_s=60.0) as child:
        found = child.now("cpu:0", limit_s=LONG_S)
        assert found is not None
        os.kill(int(found.readings["pid"]), signal.SIGSTOP)
        assert child.now("cpu:0", limit_s=0.2) is None
    wait_until_gone(int(found.readings["pid"]))


@pytest.mark.parametrize("reader", ["raising", "not_a_number"])
def test_a_reader_that_breaks_reports_nothing_and_goes_on(reader: str) -> None:
    with sampler(multiprocessing.get_context("forkserver"), reader) as child:
        for _ in range(2):
            found = child.now("cpu:0", limit_s=LONG_S)
            assert found is not None
            assert found.readings == {}


def test_samples_wait_in_the_child_while_nobody_takes_them() -> None:
    with sampler(multiprocessing.get_context("forkserver"), "large", period_s=0.02) as child:
        assert child.now("cpu:0", limit_s=LONG_S) is not None
        time.sleep(0.5)
        assert child.now("cpu:1", limit_s=LONG_S) is not None
        kept = child.window("cpu:0", 0.0, math.inf)
        assert len(kept) > 4
        assert all(len(str(sample.readings["text"])) == 300_000 for sample in kept)


def test_close_may_be_called_twice_and_nothing_is_reported_after() -> None:
    child = sampler(multiprocessing.get_context("forkserver"), "steady")
    child.close()
    child.close()
    assert child.now("cpu:0") is None


def test_a_child_at_rest_ends_by_itself_when_hung_up_on() -> None:
    child = sampler(multiprocessing.get_context("forkserver"), "steady", period_s=60.0)
    found = child.now("cpu:0", limit_s=LONG_S)
    assert found is not None
    process = child._process
    child._hang_up()
    process.join(5)
    assert process.exitcode == 0
    child.close()


def test_the_default_reader_reads_this_machine() -> None:
    with Sampler(DEVICES[:1], context=multiprocessing.get_context("forkserver")) as child:
        found = child.now("cpu:0", limit_s=LONG_S)
        assert found is not None
        assert "load" in found.readings


SCRIPT = """
import multiprocessing, sys
from sampler_readers import UnkillableContext
from truestep.backends.sampler import Sampler
from truestep.device import Device

reader, is_closed = sys.argv[1:]
context = UnkillableContext() if reader == "hanging" else multiprocessing.get_context("spawn")
child = Sampler([Device(id="cpu:0", kind="cpu", model="m")], context=context,
                reader="sampler_readers:" + reader)
print(child._process.pid, flush=True)
found = child.now("cpu:0", limit_s=0.3 if reader == "hanging" else 20.0)
print(found.readings if found else None, flush=True)
if is_closed == "closed":
    child.close()
"""


def run_script(reader: str, closing: str) -> list[str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(READERS), *sys.path])}
    command = [sys.executable, "-W", "error", "-c", SCRIPT, reader, closing]
    done = subprocess.run(
        command, env=env, check=True, capture_output=True, text=True, timeout=LONG_S
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("closing", ["closed", "forgotten"])
def test_a_child_that_cannot_be_ended_does_not_keep_the_parent(closing: str) -> None:
    pid, found = run_script("hanging", closing)
    try:
        assert found == "None"
        assert is_alive(int(pid))
    finally:
        os.kill(int(pid), signal.SIGKILL)


def test_the_child_loads_neither_torch_nor_numpy() -> None:
    _, found = run_script("heavy_modules", "closed")
    assert found == "{'loaded': ''}"


def test_the_child_writes_nothing_to_the_output_of_the_parent() -> None:
    _, found = run_script("noisy", "forgotten")
    assert "temperature_celsius" in found
