# SPDX-License-Identifier: Apache-2.0
"""Sizes of the exact transformer, and the proof that each of its accumulators is exact.

Shapes are given by letters: N tokens of a batch (B sequences of T positions), D width, H heads of
C columns each, F hidden units, V words, I = V + T inputs (one word and one position are 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from truestep.numerics.inputs import Distribution, random_integers
from truestep.numerics.mixing import derive

LIMIT = 1 << 24
"""A sum of |a||b| strictly below this is exact in fp32 in every order."""

AMPLITUDE = 127
"""Largest weight, activation and error. 7 bits, so that every multiplier reads them exactly."""

LARGEST_SHIFT = 16
"""Half of 2^16 is added before the widest shift, so bounds leave that much room."""


SHIFTS = {
    # Forward.
    "projection": 6,
    "scores": 7,
    "mix": 6,
    "output": 6,
    "up": 6,
    "down": 8,
    "logits": 6,
    # Gradients of what products were applied to.
    "head_input": 5,
    "output_input": 7,
    "mix_weights": 6,
    "score_inputs": 7,
    "projection_inputs": 6,
    "down_input": 7,
    "up_input": 8,
    # From the gradient of a weight, or of the table of inputs, to the change of its master.
    "rate": 2,
    "table_rate": 0,
    # From a master to its weight; a step moves a weight by at most 2^-step.
    "weight": 11,
    "table": 7,
    "step": 1,
}
"""Powers of two by which accumulators are divided, found by search for S. See docs/log.md."""

_WIDER = {
    "projection": 7,
    "up": 7,
    "down": 9,
    "logits": 7,
    "head_input": 6,
    "projection_inputs": 7,
    "rate": 4,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One training: everything that its digests depend on."""

    name: str
    num_layers: int
    width: int
    num_heads: int
    hidden: int
    vocabulary: int
    num_positions: int
    num_sequences: int
    num_steps: int
    steps_per_halving: int
    shifts: Mapping[str, int] = field(default_factory=lambda: dict(SHIFTS))
    initial: int = 64
    initial_table: int = 48
    seed: int = 1

    @property
    def num_tokens(self) -> int:
        """N, the K of every weight gradient."""
        return self.num_sequences * self.num_positions

    @property
    def error_amplitude(self) -> int:
        """Largest error and gradient of an activation: as N tokens leave room for it."""
        room = LIMIT - (1 << LARGEST_SHIFT)
        return min(AMPLITUDE, room // (self.num_tokens * AMPLITUDE))

    def weight_shift(self, parameter: str) -> int:
        """From a master to its weight."""
        return self.shifts["table" if parameter == "table" else "weight"]

    def rate(self, parameter: str) -> int:
        """From the gradient of a weight to the change of its master."""
        return self.shifts["table_rate" if parameter == "table" else "rate"]


_S = Size(
    name="S",
    num_layers=2,
    width=32,
    num_heads=2,
    hidden=64,
    vocabulary=16,
    num_positions=16,
    num_sequences=32,
    num_steps=96,
    steps_per_halving=24,
)
_M = Size(
    name="M",
    num_layers=3,
    width=64,
    num_heads=4,
    hidden=256,
    vocabulary=32,
    num_positions=32,
    num_sequences=32,
    num_steps=160,
    steps_per_halving=40,
    shifts=SHIFTS | _WIDER,
)
_L = replace(
    _M,
    name="L",
    num_layers=4,
    width=128,
    hidden=512,
    num_steps=200,
    steps_per_halving=50,
    seed=2,
)

SIZES: Mapping[str, Size] = {size.name: size for size in (_S, _M, _L)}
"""Every training that has a golden. Permanent: another training takes another name."""


def parameter_shapes(size: Size) -> dict[str, tuple[int, int]]:
    """Shape of each weight, in the order in which they are digested."""
    d, f = size.width, size.hidden
    shapes = {"table": (size.vocabulary + size.num_positions, d)}
    for layer in range(size.num_layers):
        for part in ("query", "key", "value", "output"):
            shapes[f"layer{layer}.attention.{part}"] = (d, d)
        shapes[f"layer{layer}.feed_forward.up"] = (d, f)
        shapes[f"layer{layer}.feed_forward.down"] = (f, d)
    return shapes | {"head": (d, size.vocabulary)}


def initial_masters(size: Size) -> dict[str, npt.NDArray[np.float32]]:
    """Masters before the first step: integers, bell-shaped."""
    masters = {}
    for number, (name, shape) in enumerate(parameter_shapes(size).items()):
        amplitude = size.initial_table if name == "table" else size.initial
        values = random_integers(
            shape,
            seed=derive(size.seed, number),
            amplitude=amplitude << size.weight_shift(name),
            distribution=Distribution.GAUSSIAN,
        )
        masters[name] = values.astype(np.float32)
    return masters


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Why an accumulator is exact: K products of operands no larger than `a` and `b`."""

    k: int
    a: int
    b: int

    @property
    def limit(self) -> int:
        """The largest possible sum of |a||b|."""
        return self.k * self.a * self.b


def bounds(size: Size) -> dict[str, Bound]:
    """The proven bound of each accumulator, by operation in the order of computation.

    Guarantees:
        Every limit is strictly below 2^24, with room for the half that rounding adds; a run
        never exceeds one.
    """
    k_input = size.vocabulary + size.num_positions
    found = {"forward/table": Bound(k=k_input, a=1, b=AMPLITUDE)}
    for layer in range(size.num_layers):
        for part, k in _forward_lengths(size).items():
            found[f"forward/layer{layer}.{part}"] = Bound(k=k, a=AMPLITUDE, b=AMPLITUDE)
    found["forward/head"] = Bound(k=size.width, a=AMPLITUDE, b=AMPLITUDE)
    error = size.error_amplitude
    found["backward/head.weight"] = Bound(k=size.num_tokens, a=AMPLITUDE, b=error)
    found["backward/head.input"] = Bound(k=size.vocabulary, a=error, b=AMPLITUDE)
    for layer in reversed(range(size.num_layers)):
        for part, k in _backward_lengths(size).items():
            found[f"backward/layer{layer}.{part}"] = Bound(k=k, a=AMPLITUDE, b=error)
    return found | {"backward/table.weight": Bound(k=size.num_tokens, a=1, b=error)}


def _forward_lengths(size: Size) -> dict[str, int]:
    """K of each product of a layer, forward."""
    d = size.width
    return {
        "attention.query": d,
        "attention.key": d,
        "attention.value": d,
        "attention.scores": d // size.num_heads,
        "attention.mix": size.num_positions,
        "attention.output": d,
        "feed_forward.up": d,
        "feed_forward.down": size.hidden,
    }


def _backward_lengths(size: Size) -> dict[str, int]:
    """K of each product of a layer, backward."""
    n, d, t = size.num_tokens, size.width, size.num_positions
    lengths = {
        "feed_forward.down.weight": n,
        "feed_forward.down.input": d,
        "feed_forward.up.weight": n,
        "feed_forward.up.input": size.hidden,
        "attention.output.weight": n,
        "attention.output.input": d,
        "attention.mix.weights": d // size.num_heads,
        "attention.mix.value": t,
        "attention.scores.query": t,
        "attention.scores.key": t,
    }
    for part in ("query", "key", "value"):
        lengths |= {f"attention.{part}.weight": n, f"attention.{part}.input": d}
    return lengths


def operations(size: Size) -> tuple[str, ...]:
    """What is digested in each step, in order: every accumulator, then every updated master."""
    return (*bounds(size), *(f"update/{name}" for name in parameter_shapes(size)))
