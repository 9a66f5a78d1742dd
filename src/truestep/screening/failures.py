# SPDX-License-Identifier: Apache-2.0
"""What is kept of a failure so that it can be repeated: arrays, and the words that go with them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truestep.backends.inventory import this_node
from truestep.backends.open import MODULES
from truestep.errors import RecordError
from truestep.fault import Fault
from truestep.record import Artifact
from truestep.screening.bench import Failure
from truestep.screening.spec import Level
from truestep.screening.tasks import Setup
from truestep.store import evidence
from truestep.store.durable import read_regular
from truestep.store.schema import from_plain, loads, to_plain

INPUTS_DIGEST = "inputs_digest"

MOST_SIMULATED = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeatable:
    """All that is needed to run a failing round again.

    Attributes:
        test_id, seed, level, backend: What ran.
        device, unit: Where it failed.
        identity: The device's, as `Device.identity_in` its node gives it.
        site: Operation that gave the wrong result.
        run_id: Run in which it was found.
        inputs_digest: Digest of all inputs of the round; equal inputs, equal digest.
        memory_bytes: What the test could allocate: its inputs may depend on it.
        num_simulated, faults: What was simulated.
    """

    test_id: str
    seed: int
    level: int
    backend: str
    device: str
    unit: str
    identity: str
    site: str
    run_id: str
    inputs_digest: str
    memory_bytes: int
    num_simulated: int = 0
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        if self.backend not in MODULES:
            raise ValueError(f"backend must be one of {', '.join(MODULES)}, got {self.backend!r}.")
        for name, least, most in (
            ("level", 1, max(Level)),
            ("num_simulated", 0, MOST_SIMULATED),
            ("memory_bytes", 1, sys.maxsize),
        ):
            if not least <= getattr(self, name) <= most:
                raise ValueError(
                    f"{name} must lie in {least}..{most}, got {getattr(self, name)!r}."
                )

    @property
    def is_simulated(self) -> bool:
        """Whether anything about it was invented."""
        return bool(self.num_simulated or self.faults)


def save_failure(
    folder: Path, name: str, failure: Failure, *, setup: Setup, test_id: str, inputs_digest: str
) -> tuple[Artifact, ...]:
    """Write a failure as evidence.

    Raises:
        RecordError: It cannot be written.
    """
    target = setup.target
    words = Repeatable(
        test_id=test_id,
        seed=failure.seed,
        level=setup.level,
        backend=setup.backend,
        device=target.device.id,
        unit=target.unit,
        identity=target.device.identity_in(this_node()),
        site=failure.site,
        run_id=setup.run_id,
        inputs_digest=inputs_digest,
        memory_bytes=setup.memory_bytes,
        num_simulated=setup.num_simulated,
        faults=setup.faults,
    )
    return evidence.save(folder, name, failure.arrays, {"repeat": to_plain(words)})


def load_failure(path: Path) -> Repeatable:
    """What an evidence file says of how to repeat it.

    Raises:
        RecordError: The file is damaged, was not written by a screening, or names a
            backend, level or number that there cannot be.
    """
    if not _is_evidence(path):
        raise RecordError(
            f"{path} must be evidence, and this is not evidence of a screening. "
            "Give the JSON file that `truestep screen` saved below `evidence`."
        )
    meta: Mapping[str, Any] = evidence.load(path).meta
    if "repeat" not in meta:
        raise RecordError(
            f"{path} must hold words on how to repeat it, and this is not evidence of a screening. "
            "Give the JSON file that `truestep screen` saved below `evidence`."
        )
    return from_plain(Repeatable, meta["repeat"])


def _is_evidence(path: Path) -> bool:
    """Whether there is a sheet of evidence, damaged or not, in the file or beside it."""
    try:
        sheet = loads(read_regular(path.with_suffix(".json"), limit_bytes=evidence.LIMIT_BYTES))
    except (OSError, ValueError):
        return False
    return isinstance(sheet, dict) and {"sheet", "meta"} <= sheet.keys()
