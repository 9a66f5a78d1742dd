# SPDX-License-Identifier: Apache-2.0
"""The reference of the exact transformer: the host, in integers or in float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import array_api_compat.numpy as xnp
import numpy as np

from truestep.backends.digest_numpy import digest_many
from truestep.backends.protocol import Host
from truestep.errors import ConfigError
from truestep.numerics.bits import np_dtype
from truestep.numerics.digest import digest_words
from truestep.workloads import copy_task
from truestep.workloads.exact_products import Mode
from truestep.workloads.exact_sizes import Size, initial_masters
from truestep.workloads.exact_transformer import ExactTransformer

Masters = Mapping[str, Host]
Step = tuple[dict[str, Host], tuple[Host, ...]]
"""The masters after a step, and what is digested of it."""

CLASSES: Mapping[str, Mode] = {
    "accumulator": Mode("fp32", "float32"),
    "bf16": Mode("fp32", "bfloat16"),
}
"""What the reference computes for each class. It multiplies integers, whatever the precision."""


class HostProducts:
    """Products in int64 or by float64 BLAS; both are exact here. Rounded once into `out`."""

    xp: Any = xnp

    def __init__(self, dtype: Literal["int64", "float64"]) -> None:
        self.dtype = np.dtype(dtype)

    def matmul(self, a: Host, b: Host, *, precision: str, out: str, site: str) -> Host:
        """`a @ b`. `precision` and `site` say nothing here."""
        del precision, site
        # Below 2^24, so that float32 takes it whole and what follows rounds once.
        product = np.matmul(a.astype(self.dtype), b.astype(self.dtype)).astype(np.float32)
        return np.asarray(product.astype(np_dtype(out)))

    def elementwise(self, op: str, *arrays: Host, site: str) -> Host:
        """The function of numpy, exact for these integers. `site` says nothing here."""
        del site
        return np.asarray(getattr(xnp, op)(*arrays))


@dataclass(frozen=True, slots=True)
class ReferenceRun:
    """The training of one size and class on the host."""

    size: Size
    value_class: str
    dtype: Literal["int64", "float64"] = "float64"

    @property
    def model(self) -> ExactTransformer:
        """The model over exact products.

        Raises:
            ConfigError: There is no such class.
        """
        if self.value_class not in CLASSES:
            raise ConfigError(
                f"the class must be one of {', '.join(CLASSES)}, got {self.value_class!r}."
            )
        return ExactTransformer(HostProducts(self.dtype), self.size, CLASSES[self.value_class])

    def step(self, masters: Masters, step: int) -> Step:
        """One step from given masters, as `ExactTransformer.step`."""
        constants = copy_task.constants(self.size)
        return self.model.step(masters, copy_task.batch(self.size, step), constants)

    def steps(self) -> Iterator[Step]:
        """Every step of the training."""
        masters: dict[str, Host] = dict(initial_masters(self.size))
        for number in range(self.size.num_steps):
            masters, shown = self.step(masters, number)
            yield masters, shown


def digests_of(shown: tuple[Host, ...]) -> Host:
    """The digests of host arrays as uint64, (number, 2)."""
    return digest_words(digest_many(shown))


def num_right(size: Size, value_class: str, masters: Masters, *, has_attention: bool = True) -> int:
    """Right answers of these weights on a batch that was never trained on."""
    batch = copy_task.batch(size, copy_task.HELD_OUT)
    constants = copy_task.constants(size, has_attention=has_attention)
    logits = ReferenceRun(size, value_class).model.logits(masters, batch, constants)
    return copy_task.num_right(logits, batch["targets"])
