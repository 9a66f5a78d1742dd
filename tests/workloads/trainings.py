# SPDX-License-Identifier: Apache-2.0
"""An exact training on any backend, digested on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from truestep.backends.digest_numpy import digest_many
from truestep.backends.open import open_backend
from truestep.numerics.digest import digest_words
from truestep.workloads import copy_task
from truestep.workloads.exact_products import Mode
from truestep.workloads.exact_sizes import SIZES, Size, initial_masters
from truestep.workloads.exact_transformer import ExactTransformer

S = SIZES["S"]


def digests_on(
    name: str, mode: Mode, *, size: Size = S, num_steps: int | None = None, compiled: bool = False
) -> Any:
    """Digests (steps, operations, 2) of the first steps on a backend."""
    backend = open_backend(name)
    device = backend.devices()[0]

    def put(hosts: Any) -> dict[str, Any]:
        return {key: backend.put(host, device) for key, host in hosts.items()}

    step = ExactTransformer(backend, size, mode).step
    if compiled:
        step = backend.compile(step)
    masters, constants = put(initial_masters(size)), put(copy_task.constants(size))
    rows = []
    for number in range(num_steps or size.num_steps):
        masters, shown = step(masters, put(copy_task.batch(size, number)), constants)
        rows.append(digest_words(digest_many([backend.get(array) for array in shown])))
    return np.stack(rows)
