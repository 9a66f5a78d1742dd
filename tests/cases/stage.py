# SPDX-License-Identifier: Apache-2.0
"""A stage without processes: benches on invented devices, and the loop that judging asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from truestep.backends.numpy_backend import NumpyBackend
from truestep.backends.protocol import Backend
from truestep.device import Device
from truestep.judging.rules import Evidence, Experiment, ExperimentKind, judge
from truestep.observation import Observation
from truestep.reference import ReferenceKind
from truestep.screening.bench import Bench
from truestep.screening.tasks import Target
from truestep.verdict import Verdict

Round = Callable[[Bench, int], None]


class Wrapped:
    """A backend of which a case changes one operation."""

    def __init__(self, inner: Backend | None = None) -> None:
        self.inner = inner or NumpyBackend()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Runs `run` on targets; `backend_of` gives what computes on each."""

    run: Round
    backend_of: Callable[[Target], Any]
    targets: Sequence[Target]

    def observe(self, target: Target, *seeds: int) -> tuple[Observation, ...]:
        bench = Bench(
            backend=self.backend_of(target), device=target.device, unit=target.unit, max_failures=0
        )
        for seed in seeds:
            bench.seed = seed
            self.run(bench, seed)
        return bench.observations(
            name="case", kind=ReferenceKind.EXACT, provenance="case", run_id="case"
        )

    def screen(self, device: Device, *, num_rounds: int = 1, **known: Any) -> Verdict:
        """The verdict on a device, with all that judging asked for."""
        own = [t for t in self.targets if t.device == device]
        first = tuple(o for t in own for o in self.observe(t, *range(num_rounds)))
        evidence = Evidence(
            device=device, first=first, has_others=len(self.targets) > 1, selftest_caught=True
        )
        evidence = replace(evidence, **known)
        answer = judge(evidence)
        while isinstance(answer, Experiment):
            evidence = self._carry_out(answer, evidence)
            answer = judge(evidence)
        return answer

    def _carry_out(self, wanted: Experiment, evidence: Evidence) -> Evidence:
        failed = Target(device=evidence.device, unit=wanted.unit).key
        is_contrast = wanted.kind is ExperimentKind.CONTRAST
        targets = [t for t in self.targets if (t.key == failed) != is_contrast]
        seen = tuple(
            o for t in targets for _ in range(wanted.times) for o in self.observe(t, wanted.seed)
        )
        evidence = replace(evidence, tried=evidence.tried | {wanted.kind})
        if is_contrast:
            return replace(evidence, contrasts=seen)
        return replace(evidence, repeats=(*evidence.repeats, *seen))
