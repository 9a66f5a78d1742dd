# SPDX-License-Identifier: Apache-2.0
"""Copies as a directed matrix: from each device to itself and to every other one."""

from __future__ import annotations

import numpy as np

from truestep.numerics.inputs import random_words
from truestep.numerics.mixing import derive
from truestep.reference import ReferenceKind
from truestep.screening.bench import Bench
from truestep.screening.spec import Level, Need, ScreeningTest

SIZES_BYTES = (8, 4_104, 65_536, 1_048_576, 4_194_304)
NUM_REPEATS = 4


def _round(bench: Bench, seed: int) -> None:
    backend = bench.backend
    size = SIZES_BYTES[derive(seed, 1) % len(SIZES_BYTES)]
    payload = bench.put(random_words(np, size // 8, seed=derive(seed, 2)))
    for receiver in (bench.device, *bench.peers):
        site = f"copy/{bench.device.id}->{receiver.id}"
        for _ in range(NUM_REPEATS):
            received = backend.copy(payload, receiver, site=site)
            backend.synchronize(receiver)
            bench.check(
                received,
                payload,
                site=site,
                value_class="full_entropy",
                inputs={"payload": payload},
                coverage={"bytes": str(size)},
                receiver=receiver,
                by_digest=True,
            )


TESTS = (
    ScreeningTest(
        id="copy_matrix",
        level=Level.QUICK,
        groups=("copy",),
        stresses="copy engines, links and bridges, in each direction apart",
        known_because="the receiver's digest must be the sender's digest",
        blind_to="links between nodes; pinned host memory; copies that overlap with compute",
        reference=ReferenceKind.EXACT,
        needs=(Need(op="copy", precision="int64"),),
        run=_round,
        share=0.5,
        min_rounds=5,
    ),
)
