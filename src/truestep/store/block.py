# SPDX-License-Identifier: Apache-2.0
"""Which part of an array is kept as evidence, where not all of it may be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from truestep.observation import Miscompare

Array = NDArray[Any]
Box = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """How one array was kept.

    Attributes:
        dtype: Its element type.
        shape: Its shape before any cut.
        box: What is kept of it (start, stop) per axis. None where it was left out.
    """

    dtype: str
    shape: tuple[int, ...]
    box: Box | None

    @property
    def is_whole(self) -> bool:
        """Whether all of it is there."""
        return self.box == tuple((0, extent) for extent in self.shape)


def cut(
    arrays: Mapping[str, Array], miscompare: Miscompare | None, *, limit_bytes: int
) -> tuple[dict[str, Array], dict[str, Kept]]:
    """The blocks that fit the limit, and how each array was kept.

    All of them where they fit together. Else each has an equal share of the limit; one above its
    share is cut to a block round the first difference where `miscompare` is of its shape, and left
    out where not.
    """
    fits = sum(array.nbytes for array in arrays.values()) <= limit_bytes
    share_bytes = limit_bytes if fits else limit_bytes // len(arrays)
    blocks, kept = {}, {}
    for name, array in arrays.items():
        box: Box | None = tuple((0, extent) for extent in array.shape)
        if array.nbytes > share_bytes:
            box = None
            if miscompare is not None and miscompare.shape == array.shape:
                box = _box_within(miscompare, share_bytes // array.itemsize)
        kept[name] = Kept(dtype=array.dtype.name, shape=array.shape, box=box)
        if box is not None:
            # The ellipsis keeps an array of no axes an array; NumPy's scalars may change bits.
            where: tuple[Any, ...] = (*(slice(start, stop) for start, stop in box), ...)
            blocks[name] = array[where]
    return blocks, kept


def _box_within(miscompare: Miscompare, most_elements: int) -> Box | None:
    """The box of the differences, halved along its longest axis until it fits, first one kept."""
    if most_elements < 1:
        return None
    box = list(miscompare.box)
    while math.prod(stop - start for start, stop in box) > most_elements:
        axis = max(range(len(box)), key=lambda i: box[i][1] - box[i][0])
        start, stop = box[axis]
        middle = (start + stop) // 2
        box[axis] = (start, middle) if miscompare.first[axis] < middle else (middle, stop)
    return tuple(box)
