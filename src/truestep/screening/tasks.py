# SPDX-License-Identifier: Apache-2.0
"""What passes between the runner and its workers: plain data, booked by task id."""

from __future__ import annotations

from dataclasses import dataclass

from truestep.device import Device
from truestep.environment import Environment
from truestep.fault import Fault
from truestep.observation import Observation
from truestep.reason import Reason
from truestep.record import Artifact


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One worker's place: a device, or one unit of it.

    Attributes:
        device: Device under test.
        unit: Unit of it, empty for the whole.
        cpu: Logical processor to which the worker is pinned, or None.
    """

    device: Device
    unit: str = ""
    cpu: int | None = None

    @property
    def key(self) -> str:
        """`cpu:0/core1`, or the device's address."""
        return f"{self.device.id}/{self.unit}" if self.unit else self.device.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a worker is started.

    Attributes:
        backend: `numpy` or `torch`.
        target: Its place.
        peers: Other devices that it may copy to.
        level: 1 to 4.
        memory_bytes: What a test may allocate.
        run_id: The run it belongs to.
        evidence_dir: Where failing inputs and outputs go; empty to save none.
        num_simulated: Invented devices in place of real ones; 0 for none.
        faults: Planted by request, beneath everything.
        is_blind: Comparison switched off by request.
    """

    backend: str
    target: Target
    peers: tuple[Device, ...] = ()
    level: int = 1
    memory_bytes: int = 1 << 28
    run_id: str = ""
    evidence_dir: str = ""
    num_simulated: int = 0
    faults: tuple[Fault, ...] = ()
    is_blind: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One test on one target.

    Attributes:
        id: Unique in the run; a result is booked by it alone.
        test_id: What to run.
        seed: Seed from which those of the rounds are derived.
        seconds: Time to spend on rounds.
        seeds: Run exactly these rounds instead.
        times: How often each of the `seeds` is run.
        with_selftest: Plant a fault before and after the rounds, and see that it is found.
    """

    id: str
    test_id: str
    seed: int = 0
    seconds: float = 0.0
    seeds: tuple[int, ...] = ()
    times: int = 1
    with_selftest: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a worker reports of a task.

    Attributes:
        task_id: Whose result it is. A result without a known task is attributed to nobody.
        observations: One for each site and value class.
        rounds: One observation for each round of the `seeds` that were asked for.
        num_rounds: Rounds done.
        is_pinned: Whether the worker really ran on its processor alone.
        is_hit: Whether a fault that was planted by request has hit anything on this worker.
        selftest_caught: Whether each planted fault was found; None where none was planted.
        evidence: Saved files, named below the evidence folder.
        elapsed_s: Wall seconds.
        reason: Why it ended early, or None.
        detail: What is known of that.
        is_interim: A miscompare was seen and the test goes on: should it never end, this stands.
    """

    task_id: str
    observations: tuple[Observation, ...] = ()
    rounds: tuple[Observation, ...] = ()
    num_rounds: int = 0
    is_pinned: bool = False
    is_hit: bool = False
    selftest_caught: bool | None = None
    evidence: tuple[Artifact, ...] = ()
    elapsed_s: float = 0.0
    reason: Reason | None = None
    detail: str = ""
    is_interim: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A device as the probe saw it.

    Attributes:
        device: The device.
        environment: All that may change bits on it.
        supported: The needs, as (operation, precision), that it meets.
        free_memory_bytes: What may be allocated there.
        busy_with: Processes of others that use it.
    """

    device: Device
    environment: Environment
    supported: frozenset[tuple[str, str]]
    free_memory_bytes: int
    busy_with: tuple[int, ...] = ()
