# SPDX-License-Identifier: Apache-2.0
"""A transformer whose weights, activations and gradients are integers: forward, backward, update.

Between products every accumulator is divided by a power of two, rounded down after adding a half,
and clamped. All values are integers held in float32, below 2^24, so every correct device gives
the same bits (`exact_sizes.bounds` is the proof). One source over the Python array API; it is
traceable, writes to no array and looks at no value.

Shapes: N tokens (B sequences of T positions), D width, H heads of C columns, F hidden units,
V words, I = V + T inputs. Masters may carry a leading axis of copies, and then so does all that is
computed with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from truestep.workloads.exact_products import (
    Array,
    Arrays,
    Mode,
    Products,
    Recorder,
    positive_zero,
    requantise,
    site_of,
)
from truestep.workloads.exact_sizes import AMPLITUDE, Size, parameter_shapes


class State(NamedTuple):
    """What a layer keeps for its backward pass, (N, D), (B, H, T, C), (B, H, T, T) or (N, F)."""

    x: Array
    query: Array
    key: Array
    value: Array
    attention: Array
    mixed: Array
    middle: Array
    hidden: Array


@dataclass(frozen=True, slots=True)
class ExactTransformer:
    """One training of `size`, computed by `backend` in `mode`."""

    backend: Products
    size: Size
    mode: Mode

    def step(
        self, masters: Arrays, batch: Arrays, constants: Arrays
    ) -> tuple[dict[str, Array], tuple[Array, ...]]:
        """One training step.

        Args:
            masters: By parameter, integers in float32.
            batch: As `copy_task.batch` gives it, on the device.
            constants: As `copy_task.constants` gives them, on the device.

        Returns:
            The masters after it, and what is digested, in the order of `exact_sizes.operations`:
            the accumulators, in float32 or the dtype of the class, and the new masters.
        """
        run = _Pass(self, masters)
        gradients = run.backward(run.forward(batch, constants), batch, constants)
        new = {
            name: self._updated(name, masters[name], gradients[name], batch["pace"])
            for name in run.weights
        }
        return new, (*run.recorder.accumulators.values(), *new.values())

    def logits(self, masters: Arrays, batch: Arrays, constants: Arrays) -> Array:
        """The raw logits (N, V)."""
        return _Pass(self, masters).forward(batch, constants)

    def _updated(self, name: str, master: Array, gradient: Array, pace: Array) -> Array:
        """The master after a step. `pace` is a power of two that falls during the training."""
        xp, size = self.backend.xp, self.size
        unit = 1 << size.weight_shift(name)
        # Clamped before it is slowed, so that what is rounded is small.
        change = requantise(xp, gradient, size.rate(name), unit >> size.shifts["step"])
        step, limit = xp.floor(change * pace + 0.5), AMPLITUDE * unit
        # The step is clamped and not the master, so that no clamp hides a fault in what is shown.
        step = xp.maximum(xp.minimum(step, master + limit), master - limit)
        site = site_of(f"update/{name}", self.mode)
        new = self.backend.elementwise("subtract", master, step, site=site)
        return positive_zero(xp, new)


class _Pass:
    """Forward and backward of one batch."""

    def __init__(self, model: ExactTransformer, masters: Arrays) -> None:
        self.size = model.size
        self.xp = model.backend.xp
        self.shifts = model.size.shifts
        self.recorder = Recorder(model.backend, model.mode)
        self.weights = {
            name: requantise(self.xp, masters[name], model.size.weight_shift(name))
            for name in parameter_shapes(model.size)
        }
        self.states: list[State] = []
        self.gradients: dict[str, Array] = {}

    def forward(self, batch: Arrays, constants: Arrays) -> Array:
        """The logits (N, V), not yet divided."""
        xp = self.xp
        words_nv = xp.astype(batch["tokens"] == constants["words"], xp.float32)
        self.inputs_ni = xp.concat([words_nv, constants["positions"]], axis=-1)
        x_nd = self._apply("table", self.inputs_ni, 0)
        for layer in range(self.size.num_layers):
            x_nd = self._layer(f"layer{layer}", x_nd, constants["mask"])
        self.last_nd = x_nd
        return self.recorder.product(x_nd, self.weights["head"], name="forward/head")

    def backward(self, logits_nv: Array, batch: Arrays, constants: Arrays) -> dict[str, Array]:
        """The gradient of each weight, not yet divided. A step subtracts it."""
        xp, shifts = self.xp, self.shifts
        targets = batch["targets"]
        wanted_nv = AMPLITUDE * xp.astype(targets == constants["words"], xp.float32)
        found_nv = xp.clip(requantise(xp, logits_nv, shifts["logits"]), 0, AMPLITUDE)
        limit = self.size.error_amplitude
        error_nv = xp.clip(found_nv - wanted_nv, -limit, limit)
        error_nv = error_nv * xp.astype(targets >= 0, xp.float32)
        d_nd = self._back("head", self.last_nd, error_nv, shifts["head_input"])
        for layer in reversed(range(self.size.num_layers)):
            d_nd = self._layer_back(f"layer{layer}", self.states[layer], d_nd)
        self._weight_gradient("table", self.inputs_ni, d_nd)
        return self.gradients

    def _layer(self, layer: str, x_nd: Array, mask_tt: Array) -> Array:
        xp, shifts = self.xp, self.shifts
        query, key, value = (
            self._heads(self._apply(f"{layer}.attention.{part}", x_nd, shifts["projection"]))
            for part in ("query", "key", "value")
        )
        scores = self.recorder.product(
            query, xp.matrix_transpose(key), name=f"forward/{layer}.attention.scores"
        )
        attention = xp.clip(requantise(xp, scores, shifts["scores"]), 0, AMPLITUDE) * mask_tt
        mixed = self.recorder.product(attention, value, name=f"forward/{layer}.attention.mix")
        mixed_nd = self._flat(requantise(xp, mixed, shifts["mix"]))
        output_nd = self._apply(f"{layer}.attention.output", mixed_nd, shifts["output"])
        middle_nd = self._clamped(x_nd + output_nd, AMPLITUDE)
        up_nf = self._apply(f"{layer}.feed_forward.up", middle_nd, shifts["up"])
        hidden_nf = xp.clip(up_nf, 0, AMPLITUDE)
        down_nd = self._apply(f"{layer}.feed_forward.down", hidden_nf, shifts["down"])
        state = State(x_nd, query, key, value, attention, mixed_nd, middle_nd, hidden_nf)
        self.states.append(state)
        return self._clamped(middle_nd + down_nd, AMPLITUDE)

    def _layer_back(self, layer: str, state: State, d_nd: Array) -> Array:
        """The gradient of a layer's input from that of its output. Residual clamps pass it."""
        shifts, limit = self.shifts, self.size.error_amplitude
        block = f"{layer}.feed_forward"
        d_nf = self._back(f"{block}.down", state.hidden, d_nd, shifts["down_input"])
        d_nf = d_nf * self._is_inside(state.hidden)
        through_nd = self._back(f"{block}.up", state.middle, d_nf, shifts["up_input"])
        d_nd = self._clamped(d_nd + through_nd, limit)
        block = f"{layer}.attention"
        mixed_nd = self._back(f"{block}.output", state.mixed, d_nd, shifts["output_input"])
        for part, back in self._attention_back(block, state, self._heads(mixed_nd)).items():
            through_nd = self._back(f"{block}.{part}", state.x, back, shifts["projection_inputs"])
            d_nd = d_nd + through_nd
        return self._clamped(d_nd, limit)

    def _attention_back(self, block: str, state: State, d_mixed: Array) -> dict[str, Array]:
        """The gradients of queries, keys and values, (N, D) each."""
        shifts, transpose = self.shifts, self.xp.matrix_transpose

        def back(a: Array, b: Array, name: str, shift: int) -> Array:
            product = self.recorder.product(a, b, name=f"backward/{block}.{name}")
            return requantise(self.xp, product, shift, self.size.error_amplitude)

        d_scores = back(d_mixed, transpose(state.value), "mix.weights", shifts["mix_weights"])
        d_scores = d_scores * self._is_inside(state.attention)
        value = back(transpose(state.attention), d_mixed, "mix.value", shifts["mix"])
        query = back(d_scores, state.key, "scores.query", shifts["score_inputs"])
        key = back(transpose(d_scores), state.query, "scores.key", shifts["score_inputs"])
        return {"query": self._flat(query), "key": self._flat(key), "value": self._flat(value)}

    def _apply(self, name: str, x: Array, shift: int) -> Array:
        product = self.recorder.product(x, self.weights[name], name=f"forward/{name}")
        return requantise(self.xp, product, shift)

    def _back(self, name: str, x: Array, d_out: Array, shift: int) -> Array:
        """Keeps the gradient of a weight, and gives that of what it was applied to."""
        self._weight_gradient(name, x, d_out)
        product = self.recorder.product(
            d_out, self.xp.matrix_transpose(self.weights[name]), name=f"backward/{name}.input"
        )
        return requantise(self.xp, product, shift, self.size.error_amplitude)

    def _weight_gradient(self, name: str, x: Array, d_out: Array) -> None:
        self.gradients[name] = self.recorder.product(
            self.xp.matrix_transpose(x), d_out, name=f"backward/{name}.weight"
        )

    def _is_inside(self, x: Array) -> Array:
        """1 where a clamp to 0..A let a value through: a saturated one that learns on, unlearns."""
        return self.xp.astype((x > 0) & (x < AMPLITUDE), self.xp.float32)

    def _clamped(self, x: Array, limit: int) -> Array:
        return self.xp.clip(x, -limit, limit)

    def _heads(self, x_nd: Array) -> Array:
        """(N, D) as (B, H, T, C)."""
        size = self.size
        columns = size.width // size.num_heads
        lead = x_nd.shape[:-2]
        shape = (*lead, size.num_sequences, size.num_positions, size.num_heads, columns)
        return self._swapped(self.xp.reshape(x_nd, shape))

    def _flat(self, x: Array) -> Array:
        """(B, H, T, C) as (N, D)."""
        shape = (*x.shape[:-4], self.size.num_tokens, self.size.width)
        return self.xp.reshape(self._swapped(x), shape)

    def _swapped(self, x: Array) -> Array:
        """With heads and positions exchanged: the third and second axis from the end."""
        lead = tuple(range(x.ndim - 4))
        return self.xp.permute_dims(x, (*lead, *(len(lead) + axis for axis in (0, 2, 1, 3))))
