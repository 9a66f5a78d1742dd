# SPDX-License-Identifier: Apache-2.0
"""An exact integer product is verified in O(n^2), without computing it again.

Source: Freivalds, "Probabilistic machines can use less running time", IFIP 1977; here in integers
modulo 2^64 with odd multipliers, so that nothing rounds and one wrong element cannot cancel.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from truestep.errors import BoundError

Host = npt.NDArray[Any]

LIMIT = 1 << 63


def verify_product(a: Host, b: Host, c: Host, *, seed: int, unit: float = 1.0) -> bool:
    """Whether `c` is `unit` times the integer product of `a` and `b`.

    Args:
        a: `[..., m, k]` integers, in a float or integer dtype.
        b: `[..., k, n]` integers.
        c: `[..., m, n]` the product under test, in a float or integer dtype. Anything in it is
            data: a fraction, an infinity or a NaN is a wrong product.
        seed: Seed of the multipliers; keep it from whatever computed `c`.
        unit: Power of two that one integer step of `c` stands for.

    Raises:
        ValueError: Shapes do not fit, `a` or `b` holds something else than integers, or `unit` is
            no power of two.
        BoundError: The product may not fit into int64.

    Guarantees: every true product is accepted. A row with one wrong element is found with
    certainty: odd multipliers are invertible modulo 2^64, and values that are no integers in range
    are found before. Rows with several wrong elements, the least of whose errors is an odd
    multiple of 2^v, are missed with probability at most 2^(v - 63) each.
    """
    leading = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if a.shape[-1] != b.shape[-2] or c.shape != (*leading, a.shape[-2], b.shape[-1]):
        raise ValueError(
            "shapes must be [..., m, k], [..., k, n] and [..., m, n], got "
            f"{list(a.shape)}, {list(b.shape)} and {list(c.shape)}."
        )
    if math.frexp(unit)[0] != 0.5 or (c.dtype.kind in "iu" and unit != 1.0):
        raise ValueError(
            f"unit must be a power of two above zero, and 1 for integers, got {unit!r}."
        )
    whole_a, whole_b, whole_c = _integers(a, 1.0), _integers(b, 1.0), _integers(c, unit)
    if whole_a is None or whole_b is None:
        raise ValueError("a and b must hold integers that fit into int64. Scale them first.")
    _check_bound(whole_a, whole_b)
    if whole_c is None:
        return False
    rng = np.random.default_rng(seed)
    r = rng.integers(-LIMIT, LIMIT, size=(b.shape[-1], 1), dtype=np.int64) | np.int64(1)
    return bool(np.array_equal(whole_c @ r, whole_a @ (whole_b @ r)))


def _integers(array: Host, unit: float) -> npt.NDArray[np.int64] | None:
    """The array in units as int64, or None where a value is not finite, integral and in range.

    A cast alone would hide fraction bits and wrap what is too large.
    """
    if array.dtype.kind in "iu":
        is_large = array.dtype.kind == "u" and array.size and int(array.max()) >= LIMIT
        return None if is_large else array.astype(np.int64)
    with np.errstate(all="ignore"):
        values = array.astype(np.float64)
        scaled = values / unit
        # The product shows a fraction that the division lost to underflow.
        ok = (np.abs(scaled) < float(LIMIT)) & (scaled == np.trunc(scaled))
        ok &= scaled * unit == values
    return scaled.astype(np.int64) if bool(ok.all()) else None


def _check_bound(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> None:
    """Raise unless k * max|a| * max|b| fits into int64, so that equal modulo 2^64 means equal."""
    largest = [max(int(x.max()), -int(x.min())) if x.size else 0 for x in (a, b)]
    bound = a.shape[-1] * largest[0] * largest[1]
    if bound >= LIMIT:
        raise BoundError(
            f"k * max|a| * max|b| must be below 2^63, got {bound}. Use smaller operands."
        )
