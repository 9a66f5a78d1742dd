# SPDX-License-Identifier: Apache-2.0
"""The process that computes: long-lived, pinned to its place, one task at a time.

It is started from a fork server that has loaded the library and initialised no device.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path

from truestep.backends.open import open_backend
from truestep.backends.protocol import Backend
from truestep.errors import UnsupportedError
from truestep.injection.faulty_backend import FaultyBackend
from truestep.injection.simulated_devices import SimulatedDevices
from truestep.numerics.mixing import derive
from truestep.observation import Observation
from truestep.reason import Reason
from truestep.record import Artifact
from truestep.screening import registry, selftest
from truestep.screening.bench import Bench
from truestep.screening.failures import INPUTS_DIGEST, save_failure
from truestep.screening.spec import ScreeningTest
from truestep.screening.tasks import Result, Setup, Task
from truestep.store.schema import dumps

STOP = "stop"


def open_for(setup: Setup) -> Backend:
    """The backend that a worker or the probe computes with, simulation included."""
    backend: Backend = open_backend(setup.backend)
    if setup.num_simulated:
        backend = SimulatedDevices(backend, setup.num_simulated)
    if setup.faults:
        backend = FaultyBackend(
            backend, setup.faults, device=setup.target.device, unit=setup.target.unit
        )
    return backend


def main(connection: Connection, setup: Setup) -> None:
    """Serve tasks until the connection closes."""
    # A signal to the whole group is for the parent, which lets every worker hand in what it has.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    is_pinned = _pin(setup.target.cpu)
    worker = Worker(connection, setup, is_pinned=is_pinned)
    try:
        while True:
            task = connection.recv()
            if isinstance(task, Task):
                hand_in(connection, worker.run(task))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def hand_in(connection: Connection, result: Result) -> None:
    """Send a result as JSON: what a corrupted worker sends is read, and never run."""
    connection.send_bytes(dumps(result).encode())


def _pin(cpu: int | None) -> bool:
    if cpu is None:
        return False
    try:
        os.sched_setaffinity(0, {cpu})
    except OSError:
        return False
    return True


@dataclass(slots=True)
class Work:
    """What has been done of a task; it outlives an exception in the middle."""

    test: ScreeningTest | None = None
    bench: Bench | None = None
    rounds: list[Observation] = field(default_factory=list)
    num_rounds: int = 0
    caught: bool | None = None
    evidence: tuple[Artifact, ...] = ()
    is_told: bool = False
    is_stopped: bool = False


class Worker:
    """Runs tasks on one target and turns whatever happens into a `Result`."""

    def __init__(self, connection: Connection, setup: Setup, *, is_pinned: bool) -> None:
        self.connection = connection
        self.setup = setup
        self.is_pinned = is_pinned
        self._backend: Backend | None = None

    def run(self, task: Task) -> Result:
        """The result of a task. A test that breaks is data, never an exception."""
        start_s = time.monotonic()
        work = Work()
        reason: Reason | None
        reason, detail = None, ""
        try:
            self._carry_out(task, work)
            reason = Reason.INTERRUPTED if work.is_stopped else None
        except (EOFError, BrokenPipeError):
            raise
        except Exception as error:  # noqa: BLE001  whatever a faulty device raises is data
            reason, detail = _reason_of(error), _last_lines(error)
        return replace(
            self._result(task, work),
            elapsed_s=time.monotonic() - start_s,
            reason=reason,
            detail=detail,
        )

    def _result(self, task: Task, work: Work) -> Result:
        """What has been done so far."""
        return Result(
            task_id=task.id,
            observations=self._observations(work),
            rounds=tuple(work.rounds),
            num_rounds=work.num_rounds,
            is_pinned=self.is_pinned,
            is_hit=bool(getattr(self._backend, "activations", ())),
            selftest_caught=work.caught,
            evidence=work.evidence,
        )

    @property
    def backend(self) -> Backend:
        """Opened at the first task, so that a device that hangs is caught by its limit."""
        if self._backend is None:
            self._backend = open_for(self.setup)
        return self._backend

    def _carry_out(self, task: Task, work: Work) -> None:
        test = work.test = registry.by_id(task.test_id)
        if task.with_selftest:
            work.caught = self._catches(test, derive(task.seed, 0, 1))
        for seed in self._seeds(test, task):
            if work.bench is None or task.seeds:
                # Rounds that are asked for by seed are told apart, each on a bench of its own.
                work.bench = self._bench(self.backend, is_digesting=bool(task.seeds))
            work.bench.seed = seed
            test.run(work.bench, seed)
            work.num_rounds += 1
            self._tell(task, work)
            if task.seeds:
                work.rounds.append(_summary(self._observations(work), work.bench.inputs_digest))
            if self._is_stopped():
                work.is_stopped = True
                return
        if work.caught:
            # A comparison may break on the way: it must still work once all is done.
            work.caught = self._catches(test, derive(task.seed, 0, 2))

    def _catches(self, test: ScreeningTest, seed: int) -> bool:
        return selftest.is_caught(
            test,
            backend=self.backend,
            device=self.setup.target.device,
            unit=self.setup.target.unit,
            seed=seed,
            make_bench=self._bench,
        )

    def _tell(self, task: Task, work: Work) -> None:
        """Hand in the first miscompare at once: the device that made it may hang or crash next."""
        if task.seeds or work.is_told or work.bench is None or not work.bench.num_miscompares:
            return
        work.is_told = True
        hand_in(self.connection, replace(self._result(task, work), is_interim=True))
        work.evidence = self._save(task, work)
        if work.evidence:
            hand_in(self.connection, replace(self._result(task, work), is_interim=True))

    def _bench(self, backend: Backend, *, is_digesting: bool = False) -> Bench:
        return Bench(
            backend=backend,
            device=self.setup.target.device,
            unit=self.setup.target.unit,
            level=self.setup.level,
            peers=self.setup.peers,
            memory_bytes=self.setup.memory_bytes,
            is_blind=self.setup.is_blind,
            is_digesting=is_digesting,
        )

    def _seeds(self, test: ScreeningTest, task: Task) -> Iterator[int]:
        if task.seeds:
            for seed in task.seeds:
                yield from itertools.repeat(seed, task.times)
            return
        end_s = time.monotonic() + task.seconds
        number = 0
        while number < test.min_rounds or time.monotonic() < end_s:
            yield derive(task.seed, 1, number)
            number += 1

    def _is_stopped(self) -> bool:
        return self.connection.poll() and self.connection.recv() == STOP

    def _observations(self, work: Work) -> tuple[Observation, ...]:
        if work.test is None or work.bench is None:
            return ()
        return work.bench.observations(
            name=work.test.id,
            kind=work.test.reference,
            provenance=f"{work.test.id}: {work.test.known_because}",
            run_id=self.setup.run_id,
        )

    def _save(self, task: Task, work: Work) -> tuple[Artifact, ...]:
        """Files with the first failure of a task; none where they cannot be written."""
        folder, bench, test = self.setup.evidence_dir, work.bench, work.test
        if not folder or bench is None or test is None or not bench.failures:
            return ()
        failure = bench.failures[0]
        again = self._bench(self.backend, is_digesting=True)
        again.seed = failure.seed
        try:
            test.run(again, failure.seed)
            return save_failure(
                Path(folder),
                task.id,
                failure,
                setup=self.setup,
                test_id=test.id,
                inputs_digest=again.inputs_digest,
            )
        except Exception as error:  # noqa: BLE001  evidence is worth less than the result
            print(f"truestep: evidence was not saved: {error}", file=sys.stderr)  # noqa: T201
            return ()


def _summary(observations: tuple[Observation, ...], inputs_digest: str) -> Observation:
    """The observation that stands for a round: its first miscompare, else its first."""
    seen = next((o for o in observations if o.is_miscompare), observations[0])
    return replace(seen, coverage={**seen.coverage, INPUTS_DIGEST: inputs_digest})


def _reason_of(error: Exception) -> Reason:
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__:
        return Reason.OUT_OF_MEMORY
    if isinstance(error, UnsupportedError):
        return Reason.MISSING_CAPABILITY
    return Reason.CRASHED


def _last_lines(error: Exception) -> str:
    return "".join(traceback.format_exception(error, limit=-4))[-2000:]
