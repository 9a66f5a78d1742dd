# SPDX-License-Identifier: Apache-2.0
"""A small language model is trained, and every accumulator of every step is known in advance."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from truestep.backends.protocol import Array, Host
from truestep.numerics.digest import digest_text
from truestep.reference import ReferenceKind
from truestep.screening.bench import Bench
from truestep.screening.spec import Level, Need, ScreeningTest
from truestep.workloads import copy_task, exact_goldens
from truestep.workloads.exact_goldens import Golden, Place
from truestep.workloads.exact_products import Mode, site_of
from truestep.workloads.exact_reference import ReferenceRun, Step
from truestep.workloads.exact_sizes import SIZES, initial_masters, operations
from truestep.workloads.exact_transformer import ExactTransformer

Arrays = Mapping[str, Array]

ROUND_S = {"S": 6.0, "M": 60.0, "L": 300.0, "XL": 600.0}
"""Seconds of one training on one slow core, with room: benchmarks/results has what was measured."""

BYTES_PER_COPY = 200 << 20
"""Masters, activations, accumulators and digests of one training of size L, with room."""

MOST_COPIES = 512

MODES = {
    "fp32": Mode("fp32", "float32"),
    "tf32": Mode("tf32", "float32"),
    "bf16": Mode("bf16", "bfloat16"),
}


@dataclass(frozen=True, slots=True)
class _Training:
    """Equal trainings on a bench, side by side, beside the golden that holds for each of them."""

    bench: Bench
    golden: Golden
    mode: Mode
    num_copies: int = 1

    def run(self) -> None:
        """Train, and hand every digest to the bench."""
        size, put = self.golden.size, self._put
        model = ExactTransformer(self.bench.backend, size, self.mode)
        constants, masters = (
            put(copy_task.constants(size)),
            put(self._copied(initial_masters(size))),
        )
        for step in range(size.num_steps):
            batch = put(copy_task.batch(size, step))
            after, shown = model.step(masters, batch, constants)
            if self._is_right(step, shown, masters, batch):
                masters = after
            else:
                # Each step speaks for itself: the next one starts from the right weights.
                right, _ = self._right_step(step, masters)
                # Past the bench: what is put here is no input of the round.
                masters = {
                    n: self.bench.backend.put(r, self.bench.device)
                    for n, r in self._copied(right).items()
                }

    def _is_right(
        self, step: int, shown: tuple[Array, ...], masters: Arrays, batch: Arrays
    ) -> bool:
        expected = functools.cache(lambda: self._right_step(step, masters)[1])
        known = digest_text(self.golden.digests[step])
        are_right = []
        for copy in range(self.num_copies):
            own = [self._of_copy(array, copy) for array in shown]
            found = self.bench.backend.digest_many(own)
            beside = f" of copy {copy}" if self.num_copies > 1 else ""
            are_right += [
                self.bench.check_digest(
                    own[i],
                    found=found[i],
                    known=known[i],
                    right=functools.partial(lambda i: expected()[i], i),
                    place=f"{Place(step, operation)}{beside}",
                    site=site_of(operation, self.mode),
                    value_class=f"training_{self.mode.value_class}",
                    inputs={**batch, **masters},
                    coverage={"training": f"{self.golden.size.name} x {self.num_copies}"},
                )
                for i, operation in enumerate(operations(self.golden.size))
            ]
        return all(are_right)

    def _right_step(self, step: int, masters: Arrays) -> Step:
        """The step on the host, from masters whose digests were right."""
        get = self.bench.backend.get
        host = {name: get(self._of_copy(master, 0)) for name, master in masters.items()}
        return ReferenceRun(self.golden.size, self.golden.value_class).step(host, step)

    def _copied(self, hosts: Mapping[str, Host]) -> Mapping[str, Host]:
        """Masters for all copies, on a leading axis where there is more than one."""
        if self.num_copies == 1:
            return hosts
        return {n: np.repeat(host[None], self.num_copies, axis=0) for n, host in hosts.items()}

    def _of_copy(self, array: Array, copy: int) -> Array:
        return array if self.num_copies == 1 else array[copy]

    def _put(self, hosts: Mapping[str, Host]) -> dict[str, Array]:
        return {name: self.bench.put(host) for name, host in hosts.items()}


def _round(bench: Bench, seed: int, *, size_name: str, precision: str) -> None:
    """One whole training. It is always the same: the seed decides nothing."""
    del seed
    mode = MODES[precision]
    golden = exact_goldens.load(SIZES[size_name], mode.value_class)
    _Training(bench, golden, mode).run()


def _filling_round(bench: Bench, seed: int, *, precision: str) -> None:
    """As many copies of L as the device has memory for; a processor shows that the way works."""
    del seed
    mode = MODES[precision]
    golden = exact_goldens.load(SIZES["L"], mode.value_class)
    fitting = bench.memory_bytes // BYTES_PER_COPY
    num_copies = 2 if bench.device.kind == "cpu" else max(2, min(fitting, MOST_COPIES))
    _Training(bench, golden, mode, num_copies).run()


def _training(size: str, precision: str, level: Level) -> ScreeningTest:
    return ScreeningTest(
        id=f"exact_training_{size.lower()}_{precision}",
        level=level,
        groups=("exact_training", precision),
        stresses=f"{precision} products in the shapes and order of training, the elementwise units "
        "and memory between them; forward, backward and update",
        known_because="weights, activations and gradients are integers whose sums stay below 2^24, "
        "so every device, library and order gives the shipped digests; integers made them",
        blind_to="exp, square root and division; wide significands; "
        "kernels that a product library keeps for larger shapes",
        reference=ReferenceKind.EXACT,
        needs=(Need(op="matmul", precision=precision),),
        run=functools.partial(_filling_round, precision=precision)
        if size == "XL"
        else functools.partial(_round, size_name=size, precision=precision),
        share=0.5,
        min_rounds=1 if "L" in size else 2,
        round_s=ROUND_S[size],
    )


TESTS = (
    _training("S", "fp32", Level.QUICK),
    _training("S", "tf32", Level.MEDIUM),
    _training("S", "bf16", Level.MEDIUM),
    *(_training("M", precision, Level.LONG) for precision in MODES),
    *(_training(size, precision, Level.EXTENDED) for size in ("L", "XL") for precision in MODES),
)
