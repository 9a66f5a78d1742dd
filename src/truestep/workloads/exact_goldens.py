# SPDX-License-Identifier: Apache-2.0
"""The shipped digests of every exact training: one list for every device, driver and library."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from truestep.errors import ConfigError, RecordError
from truestep.workloads.exact_reference import ReferenceRun, digests_of
from truestep.workloads.exact_sizes import SIZES, Size, operations

Digests = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Place:
    """Where two trainings first differ."""

    step: int
    operation: str

    def __str__(self) -> str:
        return f"step {self.step} {self.operation.replace('/', ' ')}"


@dataclass(frozen=True, slots=True)
class Golden:
    """The digests of one training, uint64 (steps, operations, 2)."""

    size: Size
    value_class: str
    digests: Digests

    def first_difference(self, other: Digests, *, first_step: int = 0) -> Place | None:
        """The first place at which other digests differ, or None.

        Args:
            other: Digests of consecutive steps, uint64 (steps, operations, 2).
            first_step: Step of the first of them.

        Raises:
            ValueError: They are not of this training.
        """
        known = self.digests[first_step : first_step + len(other)]
        if other.shape != known.shape:
            raise ValueError(
                f"digests must have shape {known.shape}, got {other.shape}. "
                "They are of another training."
            )
        differs = (other != known).any(axis=-1).reshape(-1)
        if not differs.any():
            return None
        step, index = divmod(int(differs.argmax()), known.shape[1])
        return Place(first_step + step, operations(self.size)[index])


def size_of(name: str) -> Size:
    """The size of that name.

    Raises:
        ConfigError: There is none.
    """
    if name not in SIZES:
        raise ConfigError(f"--size must be one of {', '.join(SIZES)}, got {name!r}.")
    return SIZES[name]


def regenerate(size: Size, value_class: str, *, check_every: int = 0) -> Golden:
    """The digests by the host, S in int64, larger sizes by float64 BLAS.

    Args:
        size: Which training.
        value_class: `accumulator` or `bf16`.
        check_every: Repeat every so many steps in int64 and require the same digests; 0 for none.

    Raises:
        RecordError: int64 and float64 differ: this host is at fault and must make no golden.
    """
    quick = ReferenceRun(size, value_class, "int64" if size.name == "S" else "float64")
    slow = ReferenceRun(size, value_class, "int64")
    rows = []
    before = None
    for number, (masters, shown) in enumerate(quick.steps()):
        rows.append(digests_of(shown))
        if check_every and before is not None and number % check_every == 0:
            _require_same(rows[-1], digests_of(slow.step(before, number)[1]), number)
        before = masters
    return Golden(size, value_class, np.stack(rows))


def _require_same(quick: Digests, slow: Digests, step: int) -> None:
    if not np.array_equal(quick, slow):
        raise RecordError(
            f"int64 and float64 must give the same digests, but step {step} differs. "
            "This host computes wrongly: screen it, and make the golden elsewhere."
        )


def file_name(size: Size, value_class: str) -> str:
    """The file of a golden."""
    return f"exact_{size.name.lower()}_{value_class}.safetensors"


def save(golden: Golden, folder: Path) -> Path:
    """Write a golden, and give its path."""
    path = folder / file_name(golden.size, golden.value_class)
    metadata = {"training": _definition(golden.size, golden.value_class)}
    save_file({"digests": np.ascontiguousarray(golden.digests)}, path, metadata=metadata)
    return path


def load(size: Size, value_class: str) -> Golden:
    """The shipped golden.

    Raises:
        RecordError: It is missing or damaged, or was made for another definition.
    """
    file = resources.files("truestep.workloads") / "goldens" / file_name(size, value_class)
    try:
        with resources.as_file(file) as path, safe_open(path, framework="numpy") as opened:
            training = (opened.metadata() or {}).get("training")
            digests = opened.get_tensor("digests")
    except (OSError, SafetensorError) as error:
        raise RecordError(f"{file} must be a readable golden, got: {error}. Reinstall.") from error
    expected = (size.num_steps, len(operations(size)), 2)
    if training != _definition(size, value_class) or digests.shape != expected:
        raise RecordError(
            f"{file} must hold the training that this version defines, got another. "
            "Make it again with `truestep golden exact --out`."
        )
    return Golden(size, value_class, digests)


def _definition(size: Size, value_class: str) -> str:
    words = {"class": value_class, "operations": operations(size), "size": asdict(size)}
    return json.dumps(words, sort_keys=True)
