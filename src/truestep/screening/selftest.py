# SPDX-License-Identifier: Apache-2.0
"""A fault planted beneath the backend must be found, or nothing that follows can pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from truestep.backends.protocol import Backend
from truestep.device import Device
from truestep.fault import ANY_SITE, Fault, FaultKind
from truestep.injection.faulty_backend import FaultyBackend
from truestep.reference import ReferenceKind
from truestep.screening.bench import Bench
from truestep.screening.spec import ScreeningTest

NUM_PLANTED = 2
"""Calls of each site that are hit."""


def planted(seed: int, bit: int) -> Fault:
    """The smallest fault that a test must see: its lowest bit of one element of a result."""
    return Fault(kind=FaultKind.FLIP, site=ANY_SITE, bit=bit, calls=(0, NUM_PLANTED), seed=seed)


def is_caught(
    test: ScreeningTest,
    *,
    backend: Backend,
    device: Device,
    unit: str,
    seed: int,
    make_bench: Callable[[Backend], Bench],
) -> bool:
    """Whether one round of a test finds every fault planted in it, at every site it compares.

    Args:
        test: The test as it will run.
        backend: The backend that it will run on.
        device: Where.
        unit: Unit of it, empty for the whole.
        seed: Seed of the round.
        make_bench: Makes the bench that the test will use, on a given backend.

    Guarantees:
        False where nothing could be planted at a compared site, and where the comparison is
        switched off.
    """
    faulty = FaultyBackend(backend, [planted(seed, test.planted_bit)], device=device, unit=unit)
    bench = make_bench(faulty)
    bench.seed = seed
    test.run(bench, seed)
    changed = Counter(a.site for a in faulty.activations if a.is_changed)
    seen: Counter[str] = Counter()
    for found in bench.observations(
        name=test.id, kind=ReferenceKind.EXACT, provenance="planted", run_id=""
    ):
        seen[found.site] += int(found.value)
        # A site that is compared and never hit must count, too.
        changed[found.site] += 0
    return bool(changed) and all(0 < num <= seen[site] for site, num in changed.items())
