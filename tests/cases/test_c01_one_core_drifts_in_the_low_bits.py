# SPDX-License-Identifier: Apache-2.0
"""One tile of a product drifts in its low bits: no correlation shows it, and it differs each time.

Source: https://github.com/tenstorrent/tt-metal/issues/51333
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from cases.stage import Stage, Wrapped
from truestep.device import Device
from truestep.numerics.compare import compare
from truestep.numerics.inputs import random_integers
from truestep.observation import Spread
from truestep.screening.bench import Bench
from truestep.screening.tasks import Target
from truestep.verdict import Outcome, Scope, Verdict

SIDE = 512
NUM_CALLS = 25
TILE = ((64, 96), (128, 160))
NUM_WRONG = 700
LARGEST = 9.9e-3
CHIPS = tuple(
    Device(id=f"chip:{i}", kind="xla", model="m", firmware="19.4.0") for i in (13, 14, 15)
)
BAD = CHIPS[1]


class DriftingTile(Wrapped):
    """Adds noise to some 700 elements of one tile, drawn anew at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.random = np.random.default_rng(1)

    def matmul(self, a, b, **how):
        result = self.inner.matmul(a, b, **how)
        (top, bottom), (left, right) = TILE
        tile = result[top:bottom, left:right]
        hit = self.random.permutation(tile.size)[:NUM_WRONG]
        noise = self.random.uniform(0.5, 1.0, NUM_WRONG) * LARGEST
        noise *= self.random.choice([-1, 1], NUM_WRONG)
        flat = tile.copy().reshape(-1)
        flat[hit] += noise.astype(np.float32)
        result[top:bottom, left:right] = flat.reshape(tile.shape)
        return result


@cache
def product() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    a, b = (random_integers((SIDE, SIDE), seed=seed, amplitude=3) for seed in (1, 2))
    return a.astype(np.float32), b.astype(np.float32), (a @ b).astype(np.float32)


def run(bench: Bench, seed: int) -> None:
    a, b, expected = map(bench.put, product())
    actual = bench.backend.matmul(a, b, precision="fp32", out="float32", site="matmul/fp32")
    bench.check(actual, expected, site="matmul/fp32", value_class="accumulator_exact")


@pytest.fixture(scope="module")
def verdict() -> Verdict:
    drifting = DriftingTile()
    stage = Stage(
        run=run,
        backend_of=lambda target: drifting if target.device == BAD else Wrapped(),
        targets=[Target(device=chip) for chip in CHIPS],
    )
    return stage.screen(BAD, num_rounds=NUM_CALLS)


def test_correlation_and_a_tolerance_would_have_passed():
    a, b, expected = product()
    actual = DriftingTile().matmul(a, b, precision="fp32", out="float32", site="matmul/fp32")
    assert np.corrcoef(actual.reshape(-1), expected.reshape(-1))[0, 1] > 0.9999999
    assert np.allclose(actual, expected, rtol=1e-2, atol=1e-2)
    found = compare(actual, expected)
    assert found is not None
    assert 600 < found.count <= NUM_WRONG
    assert found.box == TILE
    assert found.spread is Spread.TILE


def test_it_fails_and_names_the_device_and_the_tile(verdict):
    assert verdict.outcome is Outcome.FAIL
    assert verdict.is_confirmed
    assert (verdict.suspect.scope, verdict.suspect.name) == (Scope.DEVICE, BAD.id)
    assert "tile at [64:96, 128:160]" in verdict.detail


def test_it_says_that_the_failure_varies_from_run_to_run(verdict):
    assert "varies from run to run" in verdict.detail
    assert "the same every time" not in verdict.detail


def test_firmware_is_named_as_a_co_factor_that_was_not_varied(verdict):
    assert "firmware" in verdict.untested
