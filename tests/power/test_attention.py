# SPDX-License-Identifier: Apache-2.0
"""What the exact attention must find: in the forward result and in each of the three gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from truestep.backends.open import open_backend
from truestep.backends.protocol import Backend
from truestep.screening import registry
from truestep.screening.bench import Bench

PLACES = ("out", "dq", "dk", "dv")


def zero_a_tile(values: Any) -> Any:
    """The 8 x 8 tile round the largest value: the commonest pattern of real faults."""
    damaged = values.copy()
    *_, row, column = np.unravel_index(np.abs(values.astype(float)).argmax(), values.shape)
    row, column = row // 8 * 8, column // 8 * 8
    damaged[..., row : row + 8, column : column + 8] = 0
    return damaged


def negate_a_value(values: Any) -> Any:
    damaged = values.copy()
    damaged[np.unravel_index(np.abs(values.astype(float)).argmax(), values.shape)] *= -1
    return damaged


def flip_the_lowest_mantissa_bit(values: Any) -> Any:
    damaged = values.copy()
    words = damaged.reshape(-1).view(f"uint{values.dtype.itemsize * 8}")
    words[np.abs(values.astype(float)).argmax()] ^= 1
    return damaged


class Damaged:
    """Hands on what a backend computes, one of the four results damaged."""

    def __init__(self, inner: Backend, place: str, damage: Callable[[Any], Any]) -> None:
        self.inner, self.place, self.damage = inner, place, damage

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def _hand_on(self, result: Any, place: str) -> Any:
        if place != self.place:
            return result
        return self.inner.put(self.damage(self.inner.get(result)), self.inner.devices()[0])

    def attention(self, *args: Any, **how: Any) -> Any:
        return self._hand_on(self.inner.attention(*args, **how), "out")

    def attention_backward(self, *args: Any, **how: Any) -> Any:
        results = self.inner.attention_backward(*args, **how)
        return tuple(map(self._hand_on, results, PLACES[1:]))


@pytest.mark.parametrize("damage", [zero_a_tile, negate_a_value, flip_the_lowest_mantissa_bit])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("kernel", ["math", "flash"])
def test_damage_to_attention_is_found_where_it_is(
    kernel: str, dtype: str, place: str, damage: Callable[[Any], Any]
) -> None:
    if kernel == "flash" and place in ("dq", "dk") and damage is not flip_the_lowest_mantissa_bit:
        pytest.skip("with a single top key dq and dk are zero: there is nothing to zero or negate")
    pytest.importorskip("torch")
    backend = open_backend("torch")
    device = backend.devices()[0]
    test = registry.by_id(f"attention_{kernel}_{dtype}")
    found = set()
    # One seed in three draws a single top key, for which dq and dk are zero.
    for seed in range(3):
        bench = Bench(backend=Damaged(backend, place, damage), device=device)
        test.run(bench, seed)
        for seen in bench.observations(name="", kind=test.reference, provenance="", run_id=""):
            if seen.is_miscompare:
                assert seen.value == seen.num_comparisons
                found.add(seen.site)
    site = f"attention_{kernel}/{dtype}"
    assert found == {site if place == "out" else f"{site}/{place}"}
