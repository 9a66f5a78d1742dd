# SPDX-License-Identifier: Apache-2.0
"""What a fault does to the bits of an array. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from truestep.fault import Fault, FaultKind
from truestep.numerics.bits import as_uint
from truestep.numerics.mixing import derive, mix_int

Host = npt.NDArray[Any]


def corrupt(host: Host, fault: Fault, *, draw: int) -> tuple[Host, int, bool]:
    """A copy of an array with one element hit.

    Args:
        host: Any shape, not empty.
        fault: What to do. A stuck unit always hits the same position and bit.
        draw: Random word of this activation.

    Returns:
        The copy, the flat position, and whether its bits really changed: a bit that is stuck at
        the value it had does no harm.
    """
    damaged = np.array(host, copy=True, order="C")
    flat = damaged.reshape(-1)
    source = derive(fault.seed, 0) if fault.kind is FaultKind.STUCK else draw
    index = (fault.index if fault.index is not None else mix_int(source)) % flat.size
    element = flat[index : index + 1]
    bits = as_uint(element).copy()
    width = bits.dtype.itemsize * 8
    bit = fault.bit if fault.bit is not None else mix_int(source + 1)
    mask = bits.dtype.type(1 << (0 if host.dtype == np.bool_ else bit % width))
    if fault.kind is FaultKind.FLIP:
        bits ^= mask
    elif fault.kind is FaultKind.STUCK:
        bits |= mask
    elif fault.kind is FaultKind.NULLIFY:
        bits[:] = 0
    else:
        # A multiple that the format cannot hold is damage like any other.
        with np.errstate(all="ignore"):
            bits = as_uint((element * fault.factor).astype(element.dtype))
    is_changed = bool((bits != as_uint(element)).any())
    flat[index : index + 1] = bits.view(element.dtype)
    return damaged, int(index), is_changed
