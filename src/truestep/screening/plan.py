# SPDX-License-Identifier: Apache-2.0
"""Which tests run where, and for how long. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from truestep.device import Device
from truestep.errors import ConfigError
from truestep.screening.spec import ScreeningTest
from truestep.screening.tasks import Found, Target

MEMORY_SHARE = {1: 0.01, 2: 0.05, 3: 0.5, 4: 0.8}
"""Share of the granted memory that a level covers."""

LEAST_MEMORY_BYTES = 1 << 24
MOST_QUICK_MEMORY_BYTES = 1 << 28
"""The quick level must not spend its time on filling a large memory."""

HEADROOM = 3
"""A test holds inputs, results and expected values beside the blocks that it covers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One test: the seconds it gets and the devices that can run it."""

    test: ScreeningTest
    seconds: float
    devices: tuple[str, ...]


def chosen_of(found: Sequence[Found], devices: Sequence[str]) -> list[Found]:
    """The devices that were asked for by address, or all.

    Raises:
        ConfigError: One is asked for that there is not.
    """
    known = {f.device.id for f in found}
    unknown = [d for d in devices if d not in known]
    if unknown:
        raise ConfigError(
            f"--device must name devices that `truestep devices` lists, got {', '.join(unknown)}. "
            f"Here are {', '.join(sorted(known)) or 'none'}."
        )
    return [f for f in found if not devices or f.device.id in devices]


def targets_of(device: Device) -> tuple[Target, ...]:
    """One worker for each core of a socket, one for any other device."""
    if not device.units:
        return (Target(device=device),)
    return tuple(
        Target(device=device, unit=unit, cpu=int(unit.removeprefix("core")))
        for unit in device.units
    )


def plan(
    tests: Sequence[ScreeningTest],
    found: Sequence[Found],
    *,
    budget_s: float,
    named: Collection[str] = (),
) -> tuple[Planned, ...]:
    """The tests that some device can run, with the budget split by their shares.

    Args:
        tests: Chosen tests, in order.
        found: Devices that will be screened.
        budget_s: Seconds for all tests together.
        named: Ids that were asked for one by one. A device that cannot run one of these is kept
            in the plan, so that it is reported as skipped and never as passed; of all others it
            is left out, as what is `not_covered`.
    """
    runnable = []
    for test in tests:
        is_named = test.id in named
        if test.least_s > budget_s and not is_named:
            continue
        able = tuple(f.device.id for f in found if is_named or not lacks(test, f))
        if able:
            runnable.append((test, able))
    total = sum(test.share for test, _ in runnable) or 1.0
    return tuple(
        Planned(test=test, seconds=budget_s * test.share / total, devices=devices)
        for test, devices in runnable
    )


def lacks(test: ScreeningTest, found: Found) -> tuple[str, ...]:
    """What a device lacks for a test, in words."""
    return tuple(
        f"{n.op} in {n.precision}" for n in test.needs if (n.op, n.precision) not in found.supported
    )


def not_covered(
    tests: Sequence[ScreeningTest],
    found: Sequence[Found],
    *,
    budget_s: float,
    named: Collection[str] = (),
) -> tuple[str, ...]:
    """What `plan` leaves out and why, and devices of which only a part is seen."""
    gaps = []
    for test in (t for t in tests if t.id not in named):
        if test.least_s > budget_s:
            gaps.append(f"{test.id} (needs {test.least_s:.0f} s)")
            continue
        without: dict[tuple[str, ...], list[str]] = {}
        for one in found:
            without.setdefault(lacks(test, one), []).append(one.device.id)
        gaps += [
            f"{test.id} on {', '.join(ids)} (lacks {', '.join(missing)})"
            for missing, ids in without.items()
            if missing
        ]
    return (*gaps, *(f"{f.device.id}: partial coverage" for f in found if f.device.is_partial))


def memory_per_target(found: Found, *, level: int, num_targets: int) -> int:
    """Bytes that the memory test of one worker may cover."""
    granted = int(found.free_memory_bytes * MEMORY_SHARE[level]) // (HEADROOM if level < 3 else 1)
    most = MOST_QUICK_MEMORY_BYTES if level == 1 else granted
    return max(LEAST_MEMORY_BYTES, min(granted, most) // max(num_targets, 1))
