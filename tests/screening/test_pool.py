# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rehearsal import server
from truestep.device import Device
from truestep.reason import Reason
from truestep.screening.pool import Pool
from truestep.screening.tasks import Result, Setup, Target, Task

LONG_S = 60.0
DEVICES = tuple(
    Device(id=f"sim:{i}", kind="cpu", model="m", serial=f"SIM-{i:04d}") for i in range(2)
)


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool(server(), [Setup(backend="numpy", target=Target(device=d)) for d in DEVICES])
    yield made
    made.close()


def task(name: str, device: int = 0, **rest: object) -> Task:
    return Task(id=f"{name}-{device}", test_id=f"exercise_{name}", with_selftest=False, **rest)


def run(pool: Pool, name: str, *, limit_s: float = LONG_S, **rest: object) -> Result:
    return pool.run({"sim:0": task(name, **rest)}, limit_s=limit_s)["sim:0"]


@pytest.mark.parametrize(
    ("name", "reason", "detail"),
    [
        ("exit", Reason.CRASHED, "exit code 9"),
        ("segfault", Reason.CRASHED, "signal 11"),
        ("raise", Reason.CRASHED, "illegal memory access"),
        ("out_of_memory", Reason.OUT_OF_MEMORY, "allocate"),
    ],
)
def test_a_test_that_breaks_gives_a_result_and_the_next_one_runs(pool, name, reason, detail):
    result = run(pool, name)
    assert result.reason is reason
    assert detail in result.detail
    assert run(pool, "sound").reason is None


def test_a_test_that_hangs_is_ended_within_its_limit(pool):
    run(pool, "sound")
    pid = pool._handles["sim:0"].process.pid
    result = run(pool, "hang", limit_s=0.5)
    assert result.reason is Reason.TIMED_OUT
    assert not Path(f"/proc/{pid}").exists()
    assert run(pool, "sound").reason is None


def test_the_neighbour_of_a_crash_is_not_disturbed(pool):
    results = pool.run({"sim:0": task("exit", 0), "sim:1": task("slow", 1)}, limit_s=LONG_S)
    assert results["sim:0"].reason is Reason.CRASHED
    assert results["sim:1"].reason is None
    assert results["sim:1"].num_rounds >= 2


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("wrong_then_exit", Reason.CRASHED),
        ("wrong_then_raise", Reason.CRASHED),
        ("wrong_then_hang", Reason.TIMED_OUT),
    ],
)
def test_a_miscompare_is_kept_whatever_comes_after_it(pool, name, reason):
    result = run(pool, name, limit_s=3.0)
    assert result.reason is reason
    assert any(o.is_miscompare for o in result.observations)


def test_a_fresh_process_is_another_one_and_the_first_stays(pool):
    run(pool, "sound")
    before = pool._handles["sim:0"].process.pid
    result = pool.run_fresh("sim:0", task("exit", 7), limit_s=LONG_S)
    assert result.reason is Reason.CRASHED
    assert run(pool, "sound", seeds=(1, 2)).reason is None
    assert pool._handles["sim:0"].process.pid == before


def test_a_test_that_is_stopped_hands_in_what_it_has(pool):
    results = pool.run({"sim:0": task("slow", seconds=600)}, limit_s=LONG_S, on_wait=pool.interrupt)
    assert results["sim:0"].reason is Reason.INTERRUPTED
    assert results["sim:0"].num_rounds >= 1
    assert results["sim:0"].observations[0].num_comparisons >= 4


class SaysBytes:
    """A context whose worker says these bytes to its parent, reads nothing and lives on."""

    def __init__(self, said: bytes) -> None:
        self.said = said
        self.exitcode: int | None = None

    def Pipe(self) -> object:  # noqa: N802  named as in a context
        return multiprocessing.Pipe()

    def Process(self, *, args: tuple, **rest: object) -> SaysBytes:  # noqa: N802
        _, (theirs, _) = args
        self.line = os.dup(theirs.fileno())
        return self

    def start(self) -> None:
        os.write(self.line, self.said)

    def join(self, grace_s: float) -> None: ...

    def terminate(self) -> None:
        self.exitcode = -15

    kill = terminate

    def close(self) -> None:
        os.close(self.line)


def framed(content: bytes) -> bytes:
    return struct.pack("!i", len(content)) + content


@pytest.mark.parametrize(
    ("said", "reason", "detail"),
    [
        (framed(b"garbage"), Reason.CRASHED, "RecordError"),
        (framed(b"cnowhere\nnothing\n."), Reason.CRASHED, "RecordError"),
        (framed(pickle.dumps("a result")), Reason.CRASHED, "RecordError"),
        (framed(b'"a result"'), Reason.CRASHED, "RecordError"),
        (framed(b'{"task_id": 7}'), Reason.CRASHED, "task_id"),
        (framed(b""), Reason.CRASHED, "RecordError"),
        (struct.pack("!i", -1) + struct.pack("!Q", 1 << 62), Reason.CRASHED, "MemoryError"),
        (struct.pack("!i", 1000) + b"half of a mess", Reason.TIMED_OUT, "its limit"),
        (b"\0", Reason.TIMED_OUT, "its limit"),
        (b"", Reason.TIMED_OUT, "its limit"),
    ],
)
def test_a_worker_that_sends_nonsense_or_half_a_message_ends_no_run(said, reason, detail):
    setup = Setup(backend="numpy", target=Target(device=DEVICES[0]))
    start_s = time.monotonic()
    with contextlib.closing(Pool(SaysBytes(said), [setup])) as pool:
        result = run(pool, "sound", limit_s=0.3)
    assert result.reason is reason
    assert detail in result.detail
    assert time.monotonic() - start_s < 10


def test_a_worker_that_reads_nothing_does_not_hold_its_parent():
    setup = Setup(backend="numpy", target=Target(device=DEVICES[0]))
    start_s = time.monotonic()
    with contextlib.closing(Pool(SaysBytes(b""), [setup])) as pool:
        result = run(pool, "sound", limit_s=0.3, seeds=tuple(range(1 << 20)))
    assert result.reason is Reason.TIMED_OUT
    assert time.monotonic() - start_s < 10


UNKILLABLE = """
from sampler_readers import UnkillableContext
from truestep.device import Device
from truestep.screening.pool import Pool
from truestep.screening.tasks import Setup, Target, Task

if __name__ == "__main__":
    target = Target(device=Device(id="sim:0", kind="cpu", model="m"))
    pool = Pool(UnkillableContext(), [Setup(backend="numpy", target=target)])
    hang = Task(id="a", test_id="exercise_hang", with_selftest=False)
    print(pool.run({"sim:0": hang}, limit_s=0.5)["sim:0"].reason.value)
    again = Task(id="b", test_id="exercise_sound", with_selftest=False)
    print(pool.run({"sim:0": again}, limit_s=0.5)["sim:0"].reason.value)
    pool.close()
"""


def test_a_worker_that_cannot_be_killed_is_left_behind_and_the_parent_ends(start_python):
    readers = Path(__file__).parents[1] / "backends" / "readers"
    code = f"import sys; sys.path.insert(0, {str(readers)!r})\n{UNKILLABLE}"
    with start_python(code) as process:
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert output.split() == ["driver_hung", "driver_hung"]


WORKERS_OF_A_PARENT_THAT_DIES = """
import queue
import time
from truestep.device import Device
from truestep.screening.launch import start_server
from truestep.screening.pool import Handle
from truestep.screening.tasks import Setup, Target, Task

if __name__ == "__main__":
    target = Target(device=Device(id="sim:0", kind="cpu", model="m"))
    setup = Setup(backend="numpy", target=target)
    handle = Handle(start_server("numpy"), setup, queue.SimpleQueue())
    handle.give(Task(id="a", test_id="exercise_hang", with_selftest=False), 600)
    print(handle.process.pid, flush=True)
    time.sleep(600)
"""


def test_a_worker_that_hangs_ends_with_a_parent_that_was_killed(start_python):
    with start_python(WORKERS_OF_A_PARENT_THAT_DIES) as process:
        pid = int(process.stdout.readline())
        time.sleep(1.5)
        assert Path(f"/proc/{pid}").exists()
        process.kill()
    end_s = time.monotonic() + 10
    while is_running(pid) and time.monotonic() < end_s:
        time.sleep(0.05)
    assert not is_running(pid)


def is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
