# SPDX-License-Identifier: Apache-2.0
"""Copies: between devices as a directed matrix, and between host and device."""

from __future__ import annotations

from functools import partial

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


def _transfer_round(bench: Bench, seed: int, *, is_pinned: bool) -> None:
    size = SIZES_BYTES[derive(seed, 1) % len(SIZES_BYTES)]
    payload = bench.put(random_words(np, size // 8, seed=derive(seed, 2)))
    site = f"transfer/{'pinned' if is_pinned else 'pageable'}"
    busy = bench.put(np.ones((1024, 1024), dtype=np.float32))
    for _ in range(NUM_REPEATS):
        if bench.device.kind != "cpu":
            # What the device computes meanwhile; its result is of no interest here.
            bench.backend.elementwise("multiply", busy, busy, site="beside")
        bench.check(
            bench.backend.transfer(payload, bench.device, is_pinned=is_pinned, site=site),
            payload,
            site=site,
            value_class="full_entropy",
            inputs={"payload": payload},
            coverage={"bytes": str(size)},
        )


def _transfer(kind: str, *, is_pinned: bool) -> ScreeningTest:
    return ScreeningTest(
        id=f"copy_host_{kind}",
        level=Level.QUICK,
        groups=("copy",),
        stresses=f"copy engines and the bus, to the host and back, {kind} host memory",
        known_because="what comes back must be what was sent",
        blind_to="which of the two directions damaged it",
        reference=ReferenceKind.EXACT,
        needs=(Need(op="transfer_pinned" if is_pinned else "transfer", precision="int64"),),
        run=partial(_transfer_round, is_pinned=is_pinned),
        share=0.25,
        min_rounds=5,
    )


TESTS = (
    _transfer("pageable", is_pinned=False),
    _transfer("pinned", is_pinned=True),
    ScreeningTest(
        id="copy_matrix",
        level=Level.QUICK,
        groups=("copy",),
        stresses="copy engines, links and bridges, in each direction apart",
        known_because="the receiver's digest must be the sender's digest",
        blind_to="links between nodes",
        reference=ReferenceKind.EXACT,
        needs=(Need(op="copy", precision="int64"),),
        run=_round,
        share=0.5,
        min_rounds=5,
    ),
)
