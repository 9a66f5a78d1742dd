# SPDX-License-Identifier: Apache-2.0
"""The digest on a host processor in C, built by the machine's own compiler where asked for.

One call digests any number of tensors where they lie: compiled torch code costs some 60 us a call,
as much as half a megabyte, and its batches must first be copied together. Building takes a fraction
of a second. Held bit for bit to `truestep.numerics.digest`.
"""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from truestep.numerics.digest import K1, K2, K3, K5

SOURCE = f"""
#include <stdint.h>
#include <string.h>

static inline void mix(uint64_t x, uint64_t r, uint64_t *first, uint64_t *second) {{
  uint64_t h = x + r;
  h = (h ^ h >> 30) * UINT64_C({K2});
  uint64_t q = (h ^ h >> 27) * UINT64_C({K3});
  *first += q ^ q >> 31;
  uint64_t g = (q - r) * UINT64_C({K5});
  *second += g ^ g >> 32;
}}

void lane_sums(const char *const *data, const uint64_t *bytes, const uint64_t *offset, int64_t k,
               uint64_t *out) {{
  for (int64_t j = 0; j < k; j++) {{
    uint64_t n = bytes[j] / 8, left = bytes[j] % 8, start = offset[j] + 1, a = 0, b = 0, x;
    for (uint64_t i = 0; i < n; i++) {{
      memcpy(&x, data[j] + 8 * i, 8);
      mix(x, (start + i) * UINT64_C({K1}), &a, &b);
    }}
    if (left) {{
      x = 0;
      memcpy(&x, data[j] + 8 * n, left);
      mix(x, (start + n) * UINT64_C({K1}), &a, &b);
    }}
    out[j] = a;
    out[k + j] = b;
  }}
}}
"""


@functools.cache
def _library() -> ctypes.CDLL | None:
    """The built code, or None where no compiler is found or it fails."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory(prefix="truestep-") as folder:
        built = Path(folder) / "digest.so"
        command = [compiler, "-O3", "-march=native", "-shared", "-fPIC", "-x", "c", "-"]
        try:
            subprocess.run(
                [*command, "-o", str(built)],
                input=SOURCE.encode(),
                check=True,
                capture_output=True,
                timeout=60,
            )
            # What is loaded stays mapped when its file is gone.
            return ctypes.CDLL(str(built))
        except (OSError, subprocess.SubprocessError):
            return None


def is_available() -> bool:
    """Whether this machine could build the code. The first call builds it."""
    return _library() is not None


def lane_sums_at(
    addresses: Sequence[int], num_bytes: Sequence[int], *, offsets: Sequence[int] | None = None
) -> npt.NDArray[np.uint64]:
    """Lane sums `[2, k]` of k pieces of contiguous host memory, of any length and alignment.

    Args:
        addresses: Where each begins. The caller keeps the memory alive.
        num_bytes: Length of each; the tail is padded with zeros to a word.
        offsets: Index of each first word. Zero where it is left out.

    Guarantees: each column equals `numerics.digest.lane_sums` of that piece; memory is only read.
    """
    library = _library()
    assert library is not None, "ask is_available first"
    k = len(addresses)
    columns = (addresses, num_bytes, [0] * k if offsets is None else offsets)
    data, sizes, starts = (np.array(column, np.uint64) for column in columns)
    out = np.empty((2, k), np.uint64)
    at = [ctypes.c_void_p(array.ctypes.data) for array in (data, sizes, starts, out)]
    library.lane_sums(*at[:3], ctypes.c_int64(k), at[3])
    return out
