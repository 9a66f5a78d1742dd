# SPDX-License-Identifier: Apache-2.0
"""A saved failure, repeated: does it follow the device?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing.context import BaseContext

from truestep.device import Device
from truestep.judging.power import interval
from truestep.screening import registry
from truestep.screening.failures import INPUTS_DIGEST, Repeatable
from truestep.screening.plan import chosen_of, targets_of
from truestep.screening.pool import Pool
from truestep.screening.probe import probe
from truestep.screening.tasks import Result, Setup, Target, Task

LIMIT_S = 600.0


class Conclusion(StrEnum):
    """What a replay shows."""

    FOLLOWS_DEVICE = "the failure follows the device"
    ALL_ALIKE = "every device fails alike: look at the software or the platform"
    HERE_ONLY = "it fails here; no other device was tried"
    ELSEWHERE = "it fails on a device other than the one it was found on"
    NOT_REPRODUCED = "not reproduced here; the earlier evidence stays"
    OTHER_INPUTS = "this installation draws other inputs from the seed: the replay says nothing"
    NOTHING_RAN = "nothing could be repeated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The repeats on one target."""

    target: Target
    num_failed: int
    num_rounds: int
    is_same_input: bool
    problem: str = ""

    @property
    def bounds(self) -> tuple[float, float]:
        """95 % interval of the share of rounds that fail."""
        return interval(self.num_failed, self.num_rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """All attempts and what they show together."""

    attempts: tuple[Attempt, ...]
    conclusion: Conclusion


def replay(
    failure: Repeatable,
    *,
    times: int,
    devices: tuple[str, ...],
    context: BaseContext,
) -> Replay:
    """Repeat a failing round on the device it was found on, or on others.

    Args:
        failure: From `failures.load_failure`.
        times: Rounds on each target.
        devices: Where; empty for every device that is here.
        context: How processes are started.

    Raises:
        ConfigError: A device is named that there is not.
        BackendError: The devices could not be listed.
    """
    nowhere = Target(device=Device(id="", kind="cpu", model=""))
    found = probe(context, _setup(failure, nowhere), ())
    chosen = [f.device for f in chosen_of(found, devices)]
    targets = {t.key: t for d in chosen for t in targets_of(d)}
    test = registry.by_id(failure.test_id)
    tasks = {
        key: Task(
            id=f"replay-{key}",
            test_id=test.id,
            seeds=(failure.seed,),
            times=times,
            with_selftest=False,
        )
        for key in targets
    }
    pool = Pool(context, [_setup(failure, t, chosen) for t in targets.values()])
    try:
        results = pool.run(tasks, limit_s=LIMIT_S)
    finally:
        pool.close()
    attempts = tuple(_attempt(targets[k], r, failure) for k, r in results.items())
    return Replay(attempts=attempts, conclusion=conclude(attempts, failure))


def conclude(attempts: Iterable[Attempt], failure: Repeatable) -> Conclusion:
    """What the attempts show. Pure."""
    ran = [a for a in attempts if a.num_rounds]
    if not ran:
        return Conclusion.NOTHING_RAN
    if not all(a.is_same_input for a in ran):
        return Conclusion.OTHER_INPUTS
    bad = {a.target.device.id for a in ran if a.num_failed}
    clean = {a.target.device.id for a in ran} - bad
    if not bad:
        return Conclusion.NOT_REPRODUCED
    if not any(_is_original(a.target, failure) for a in ran if a.num_failed):
        return Conclusion.ELSEWHERE
    if clean:
        return Conclusion.FOLLOWS_DEVICE
    return Conclusion.ALL_ALIKE if len(bad) > 1 else Conclusion.HERE_ONLY


def _is_original(target: Target, failure: Repeatable) -> bool:
    device = target.device
    if failure.serial or device.serial:
        return device.serial == failure.serial
    return device.id == failure.device


def _setup(failure: Repeatable, target: Target, devices: Sequence[Device] = ()) -> Setup:
    return Setup(
        backend=failure.backend,
        target=target,
        peers=tuple(d for d in devices if d.id != target.device.id),
        level=failure.level,
        num_simulated=failure.num_simulated,
        faults=failure.faults,
    )


def _attempt(target: Target, result: Result, failure: Repeatable) -> Attempt:
    digests = {r.coverage.get(INPUTS_DIGEST) for r in result.rounds}
    return Attempt(
        target=target,
        num_failed=sum(r.is_miscompare for r in result.rounds),
        num_rounds=len(result.rounds),
        is_same_input=digests <= {failure.inputs_digest},
        problem=result.reason.value if result.reason else "",
    )
