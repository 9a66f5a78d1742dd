# SPDX-License-Identifier: Apache-2.0
"""A saved failure, repeated: does it follow the device?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing.context import BaseContext

from truestep.backends.inventory import this_node
from truestep.device import Device, Node
from truestep.errors import ConfigError
from truestep.judging.attribution import LUCK, Cell, luck
from truestep.judging.power import interval
from truestep.screening import registry
from truestep.screening.failures import INPUTS_DIGEST, Repeatable
from truestep.screening.plan import chosen_of, targets_of
from truestep.screening.pool import Pool
from truestep.screening.probe import probe
from truestep.screening.tasks import Found, Result, Setup, Target, Task

LIMIT_S = 600.0


class Conclusion(StrEnum):
    """What a replay shows."""

    FOLLOWS_UNIT = "the failure follows one unit of the device"
    FOLLOWS_DEVICE = "the failure follows the device"
    MAY_BE_LUCK = (
        "it fails here; the other devices were clean, but that may be luck: repeat more often"
    )
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
    """All attempts and what they show together.

    Attributes:
        attempts: One for each target.
        conclusion: What they show.
        suspect: The unit or device that the failure follows, else empty.
        is_simulated: Anything about it is invented: it says nothing of hardware.
    """

    attempts: tuple[Attempt, ...]
    conclusion: Conclusion
    suspect: str = ""
    is_simulated: bool = False


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
        ConfigError: A device is named that there is not, or lacks the memory of the failing round.
        BackendError: The devices could not be listed.
    """
    nowhere = Target(device=Device(id="", kind="cpu", model=""))
    found = probe(context, _setup(failure, nowhere), ())
    chosen = chosen_of(found, devices)
    here = [f.device for f in chosen]
    targets = {t.key: t for d in here for t in targets_of(d)}
    _require_memory(chosen, failure)
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
    pool = Pool(context, [_setup(failure, t, here) for t in targets.values()])
    try:
        results = pool.run(tasks, limit_s=LIMIT_S)
    finally:
        pool.close()
    attempts = tuple(_attempt(targets[k], r, failure) for k, r in results.items())
    node = this_node()
    conclusion = conclude(attempts, failure, node=node)
    return Replay(
        attempts=attempts,
        conclusion=conclusion,
        suspect=_suspect(conclusion, attempts, failure, node),
        is_simulated=failure.is_simulated or any(d.is_simulated for d in here),
    )


def conclude(attempts: Iterable[Attempt], failure: Repeatable, *, node: Node) -> Conclusion:
    """What the attempts on the devices of a node show. Pure."""
    ran = [a for a in attempts if a.num_rounds]
    if not ran:
        return Conclusion.NOTHING_RAN
    if not all(a.is_same_input for a in ran):
        return Conclusion.OTHER_INPUTS
    if not any(a.num_failed for a in ran):
        return Conclusion.NOT_REPRODUCED
    own = [a for a in ran if _is_original(a, failure, node)]
    if not any(a.num_failed for a in own):
        return Conclusion.ELSEWHERE
    return _conclude_here(own, ran)


def _conclude_here(own: Sequence[Attempt], ran: Sequence[Attempt]) -> Conclusion:
    """What it shows that the device on which it was found fails again."""
    bad = [a for a in own if a.num_failed]
    clean_units = [a for a in own if not a.num_failed]
    if len(bad) == 1 and clean_units and _is_contrast(bad, clean_units):
        return Conclusion.FOLLOWS_UNIT
    bad_devices = {a.target.device.id for a in ran if a.num_failed}
    clean = [a for a in ran if a.target.device.id not in bad_devices]
    if not clean:
        return Conclusion.ALL_ALIKE if len(bad_devices) > 1 else Conclusion.HERE_ONLY
    return Conclusion.FOLLOWS_DEVICE if _is_contrast(bad, clean) else Conclusion.MAY_BE_LUCK


def _is_contrast(bad: Iterable[Attempt], clean: Iterable[Attempt]) -> bool:
    """Whether targets as bad as the bad ones would rarely look as clean as the clean ones."""
    return luck(map(_cell, bad), map(_cell, clean)) <= LUCK


def _cell(attempt: Attempt) -> Cell:
    target = attempt.target
    return Cell(target.device.id, target.unit, (), attempt.num_failed, attempt.num_rounds)


def _is_original(attempt: Attempt, failure: Repeatable, node: Node) -> bool:
    return attempt.target.device.identity_in(node) == failure.identity


def _suspect(
    conclusion: Conclusion, attempts: Iterable[Attempt], failure: Repeatable, node: Node
) -> str:
    failed = (a.target for a in attempts if a.num_failed and _is_original(a, failure, node))
    if conclusion is Conclusion.FOLLOWS_UNIT:
        return next(failed).key
    return next(failed).device.id if conclusion is Conclusion.FOLLOWS_DEVICE else ""


def _require_memory(chosen: Iterable[Found], failure: Repeatable) -> None:
    for one in chosen:
        needed = failure.memory_bytes * len(targets_of(one.device))
        if needed > one.free_memory_bytes:
            raise ConfigError(
                f"{one.device.id} must have {needed} bytes free to repeat this failure, got "
                f"{one.free_memory_bytes}. Free memory there, or choose others with --device."
            )


def _setup(failure: Repeatable, target: Target, devices: Sequence[Device] = ()) -> Setup:
    return Setup(
        backend=failure.backend,
        target=target,
        peers=tuple(d for d in devices if d.id != target.device.id),
        level=failure.level,
        memory_bytes=failure.memory_bytes,
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
