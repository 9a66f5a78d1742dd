# SPDX-License-Identifier: Apache-2.0
"""A screening from request to report: probe, admit, plan, run, judge, record.

The one loop of the design is in `Runner._settle`: judging may answer with an experiment, which is
run and judged again.
"""

from __future__ import annotations

import shlex
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing.context import BaseContext

from truestep.backends.device_lock import DeviceLock
from truestep.backends.inventory import this_node
from truestep.backends.sampler import READER, Sampler
from truestep.context import Context, Sample
from truestep.device import Device
from truestep.judging.health import health
from truestep.judging.rules import Evidence, Experiment, ExperimentKind, judge
from truestep.numerics.mixing import derive
from truestep.observation import Observation
from truestep.reason import Reason
from truestep.record import Artifact, Record, RecordKind
from truestep.screening import registry
from truestep.screening.plan import (
    Planned,
    chosen_of,
    lacks,
    memory_per_target,
    not_covered,
    plan,
    targets_of,
)
from truestep.screening.pool import Pool
from truestep.screening.probe import probe
from truestep.screening.request import Progress, Report, Request
from truestep.screening.spec import Level, ScreeningTest
from truestep.screening.tasks import Found, Result, Setup, Target, Task
from truestep.verdict import Outcome, Status, Verdict

LIMIT_FLOOR_S = 60.0
LIMIT_FACTOR = 4.0
"""A task may take this much longer than its time, and the floor on top, before it is ended."""

NO_DEVICE = Device(id="", kind="cpu", model="")

HEALTH = "health"
"""Subject of the record of what the driver already knows."""

ADMISSION = "admission"
"""Subject of the record of a device that was not screened at all."""

STRAY = "stray result"
"""Subject of the record of a result that belongs to no task."""


def screen(
    request: Request,
    *,
    context: BaseContext,
    progress: Progress,
    keep: Callable[[Record], None],
    reader: str = READER,
) -> Report:
    """Screen the granted devices.

    Args:
        request: What is asked for.
        context: How processes are started: a fork server that has loaded the backend's library.
        progress: Who is told, and may stop it.
        keep: Called with each record as soon as it is made.
        reader: `module:function` that gives the readings of a device.

    Raises:
        ConfigError: The request names a device or test that there is not.
        BackendError: The devices could not be listed.

    Guarantees:
        Every planned test of every device has a record, whatever happens to its worker; clocks and
        modes are not touched; nothing outside the granted devices and memory is used.
    """
    return Runner(request, context, progress, keep, reader=reader).run()


class Runner:
    """One screening under way."""

    def __init__(
        self,
        request: Request,
        context: BaseContext,
        progress: Progress,
        keep: Callable[[Record], None],
        *,
        reader: str = READER,
    ) -> None:
        self.request = request
        self.context = context
        self.progress = progress
        self.keep = keep
        self.reader = reader
        self.run_id = request.run_id or uuid.uuid4().hex[:12]
        self.node = this_node()
        self.records: list[Record] = []
        self._pool: Pool | None = None
        self._sampler: Sampler | None = None
        self._targets: dict[str, Target] = {}
        self._num_tasks = 0
        self._unpinned: set[str] = set()
        self._is_hit = False
        self._is_interrupted = False

    def run(self) -> Report:
        """Carry the request out."""
        start_s = time.monotonic()
        tests = registry.choose(self.request.tests, level=self.request.level)
        needs = {(n.op, n.precision) for t in tests for n in t.needs}
        nowhere = self._setup(Target(device=NO_DEVICE))
        found = chosen_of(probe(self.context, nowhere, needs), self.request.devices)
        with ExitStack() as stack:
            free = [f for f in found if self._admit(f, stack)]
            if free:
                self._run_tests(tests, free, stack)
        return Report(
            run_id=self.run_id,
            node=self.node,
            request=self.request,
            found=tuple(found),
            records=tuple(self.records),
            not_covered=(
                *not_covered(tests, found, budget_s=self.budget_s, named=self.request.tests),
                *(f"{d}: partial coverage (not pinned)" for d in sorted(self._unpinned)),
            ),
            is_hit=self._is_hit,
            is_interrupted=self._is_interrupted,
            elapsed_s=time.monotonic() - start_s,
        )

    def _admit(self, found: Found, stack: ExitStack) -> bool:
        """Lock a device that nobody else uses; a record says why it was left out."""
        if found.busy_with and not self.request.allow_busy:
            pids = ", ".join(map(str, found.busy_with[:8]))
            self._skip(found, ADMISSION, Reason.IN_USE, f"used by processes {pids}")
            return False
        lock = DeviceLock(found.device.identity_in(self.node))
        if not lock.acquire():
            self._skip(found, ADMISSION, Reason.LOCKED, "another screening holds its lock")
            return False
        stack.callback(lock.release)
        return True

    def _run_tests(
        self, tests: Sequence[ScreeningTest], found: list[Found], stack: ExitStack
    ) -> None:
        planned = plan(tests, found, budget_s=self.budget_s, named=self.request.tests)
        self._sampler = Sampler([f.device for f in found], context=self.context, reader=self.reader)
        stack.callback(self._sampler.close)
        self._pool = Pool(self.context, self._setups(found))
        stack.callback(self._pool.close)
        self.progress.planned(len(planned), self.budget_s)
        for one in found:
            self._check_health(one)
        for step in planned:
            devices = [f for f in found if f.device.id in step.devices]
            if self._is_interrupted:
                for one in devices:
                    self._skip(one, step.test.id, Reason.NOT_STARTED, "the run was stopped")
                continue
            self.progress.started(step.test.id)
            self._run_test(step, devices)
        self._record_strays()

    def _run_test(self, step: Planned, devices: list[Found]) -> None:
        """One test on all devices together, judged and recorded for each."""
        able = []
        for one in devices:
            missing = lacks(step.test, one)
            if missing:
                what = f"lacks {', '.join(missing)}"
                self._skip(one, step.test.id, Reason.MISSING_CAPABILITY, what)
            else:
                able.append(one)
        keys = [k for k, t in self._targets.items() if t.device.id in {f.device.id for f in able}]
        before = {f.device.id: self._sample(f.device) for f in able}
        start_s = time.time()
        seed = derive(self.request.seed, zlib.crc32(step.test.id.encode()))
        results = self._give(keys, step.test, seconds=step.seconds, seed=seed)
        self._unpinned |= unpinned(results, self._targets)
        self._is_hit |= any(r.is_hit for r in results.values())
        for one in able:
            context = Context(
                before=before[one.device.id],
                during=self._window(one.device, start_s),
                after=self._sample(one.device),
            )
            own = {k: r for k, r in results.items() if self._targets[k].device.id == one.device.id}
            others = {k: r for k, r in results.items() if k not in own}
            self._settle(one, step.test, own, others, context)

    def _settle(
        self,
        found: Found,
        test: ScreeningTest,
        own: dict[str, Result],
        others: dict[str, Result],
        context: Context,
    ) -> None:
        """Judge one device, running what judging asks for, and record it."""
        broken = [r for r in own.values() if r.reason is not None]
        evidence = Evidence(
            device=found.device,
            first=_with_process("same", (o for r in own.values() for o in r.observations)),
            others=_with_process("same", (o for r in others.values() for o in r.observations)),
            selftest_caught=all(r.selftest_caught for r in own.values()),
            context=context,
            has_others=len(own) + len(others) > 1,
            interruption=broken[0].reason if broken else None,
            detail=broken[0].detail if broken else "",
        )
        answer = judge(evidence)
        while isinstance(answer, Experiment):
            if self._is_interrupted:
                # Whoever stopped the run gets the verdict that stands without experiments.
                evidence = replace(evidence, tried=frozenset(ExperimentKind))
            else:
                evidence = self._experiment(answer, evidence, test, list(own), list(others))
            answer = judge(evidence)
        artifacts = tuple(a for r in own.values() for a in r.evidence)
        self._record(found, test.id, answer, evidence=evidence, artifacts=artifacts)

    def _experiment(
        self,
        wanted: Experiment,
        evidence: Evidence,
        test: ScreeningTest,
        own: list[str],
        others: list[str],
    ) -> Evidence:
        """The evidence with what an experiment showed."""
        failed = Target(device=evidence.device, unit=wanted.unit).key
        seeds = (wanted.seed,) * wanted.times
        evidence = replace(evidence, tried=evidence.tried | {wanted.kind})
        if wanted.kind is ExperimentKind.CONTRAST:
            keys = [k for k in (*own, *others) if k != failed]
            results = self._give(keys, test, seeds=seeds)
            return replace(evidence, contrasts=_rounds("same", results.values()))
        if wanted.kind is ExperimentKind.REPEAT:
            seen = _rounds("same", self._give([failed], test, seeds=seeds).values())
        else:
            task = self._task(test, seeds=seeds)
            result = self.pool.run_fresh(failed, task, limit_s=_limit_s(test))
            seen = _rounds("fresh", [result])
        return replace(evidence, repeats=(*evidence.repeats, *seen))

    def _check_health(self, found: Found) -> None:
        """A record of what the driver already knows, where it knows something."""
        sample = self._sample(found.device)
        reason = health(sample)
        if reason is None:
            return
        verdict = Verdict(
            outcome=Outcome.UNKNOWN if reason is Reason.RESET_NEEDED else Outcome.FAIL,
            status=Status.COMPLETE,
            reason=reason,
            is_confirmed=True,
            detail=reason.next_action,
        )
        evidence = Evidence(device=found.device, first=(), context=Context(before=sample))
        self._record(found, HEALTH, verdict, evidence=evidence)

    def _record_strays(self) -> None:
        """A record of each result that belongs to no task: it is kept, and blamed on nobody."""
        for stray in self.pool.bookings.unattributed:
            verdict = Verdict(
                outcome=Outcome.UNKNOWN,
                status=Status.ERROR,
                reason=Reason.UNATTRIBUTED,
                detail=f"a result names the task {stray.task_id!r}, which was not given out",
            )
            evidence = Evidence(device=NO_DEVICE, first=stray.observations)
            self._record(None, STRAY, verdict, evidence=evidence, artifacts=stray.evidence)

    def _skip(self, found: Found, subject: str, reason: Reason, detail: str) -> None:
        verdict = Verdict(
            outcome=Outcome.UNKNOWN, status=Status.SKIPPED, reason=reason, detail=detail
        )
        self._record(found, subject, verdict)

    def _record(
        self,
        found: Found | None,
        subject: str,
        verdict: Verdict,
        *,
        evidence: Evidence | None = None,
        artifacts: tuple[Artifact, ...] = (),
    ) -> None:
        seen = () if evidence is None else evidence.first + evidence.repeats + evidence.contrasts
        record = Record(
            id=f"{self.run_id}-{len(self.records):04d}",
            kind=RecordKind.SCREENING,
            run_id=self.run_id,
            time_s=time.time(),
            subject=subject,
            node=self.node,
            device=None if found is None else found.device,
            environment=None if found is None else found.environment,
            context=None if evidence is None else evidence.context,
            observations=_compact(seen),
            verdict=replace(verdict, evidence=tuple(a.name for a in artifacts)),
            replay="" if found is None else self._replay(subject, found.device, artifacts),
            artifacts=artifacts,
            is_simulated=self.request.is_simulated
            or (found is not None and found.device.is_simulated),
        )
        self.records.append(record)
        self.keep(record)
        self.progress.finished(record)

    def _replay(self, subject: str, device: Device, artifacts: tuple[Artifact, ...]) -> str:
        sheets = [a.name for a in artifacts if a.name.endswith(".json")]
        if sheets:
            return f"truestep replay {shlex.quote(f'{self.request.evidence_dir}/{sheets[0]}')}"
        chosen = "" if subject in (HEALTH, ADMISSION) else f" --test {subject}"
        num = self.request.num_simulated
        return (
            f"truestep screen{chosen} --seed {self.request.seed} --level {self.request.level} "
            f"--backend {self.request.backend} --device {shlex.quote(device.id)}"
            + (f" --simulate-devices {num}" if num else "")
        )

    @property
    def budget_s(self) -> float:
        """Seconds for all tests together."""
        return self.request.budget_s or Level(self.request.level).budget_s

    @property
    def pool(self) -> Pool:
        """The workers; there are some while tests run."""
        assert self._pool is not None
        return self._pool

    def _give(
        self,
        keys: Iterable[str],
        test: ScreeningTest,
        *,
        seconds: float = 0.0,
        seed: int = 0,
        seeds: tuple[int, ...] = (),
    ) -> dict[str, Result]:
        """The results of one test on many targets at once."""
        tasks = {key: self._task(test, seconds=seconds, seed=seed, seeds=seeds) for key in keys}
        limit_s = _limit_s(test, seconds)
        return self.pool.run(tasks, limit_s=limit_s, on_wait=self._on_wait)

    def _task(
        self,
        test: ScreeningTest,
        *,
        seconds: float = 0.0,
        seed: int = 0,
        seeds: tuple[int, ...] = (),
    ) -> Task:
        self._num_tasks += 1
        return Task(
            id=f"{self.run_id}-{test.id}-{self._num_tasks}",
            test_id=test.id,
            seed=seed,
            seconds=seconds,
            seeds=seeds,
            with_selftest=not seeds,
        )

    def _on_wait(self) -> None:
        self.progress.waiting()
        if self._sampler is not None:
            self._sampler.drain()
        if self.progress.is_stopped() and not self._is_interrupted:
            self._is_interrupted = True
            self.pool.interrupt()

    def _setups(self, found: Sequence[Found]) -> list[Setup]:
        setups = []
        for one in found:
            targets = targets_of(one.device)
            memory_bytes = memory_per_target(
                one, level=self.request.level, num_targets=len(targets)
            )
            # Copies leave from one core of a socket; every core has the same links.
            peers = tuple(f.device for f in found if f.device.id != one.device.id)
            for number, target in enumerate(targets):
                self._targets[target.key] = target
                setup = self._setup(target)
                setups.append(
                    replace(setup, memory_bytes=memory_bytes, peers=peers if number == 0 else ())
                )
        return setups

    def _setup(self, target: Target) -> Setup:
        return Setup(
            backend=self.request.backend,
            target=target,
            level=self.request.level,
            run_id=self.run_id,
            evidence_dir=self.request.evidence_dir,
            num_simulated=self.request.num_simulated,
            faults=self.request.faults,
            is_blind=self.request.is_blind,
        )

    def _sample(self, device: Device) -> Sample | None:
        return None if self._sampler is None else self._sampler.now(device.id, 0.5)

    def _window(self, device: Device, start_s: float) -> tuple[Sample, ...]:
        if self._sampler is None:
            return ()
        return self._sampler.window(device.id, start_s, time.time())


def unpinned(results: Mapping[str, Result], targets: Mapping[str, Target]) -> set[str]:
    """Devices of which a worker ran where the system liked: which core it tested is not known."""
    return {
        targets[key].device.id
        for key, result in results.items()
        if targets[key].cpu is not None and result.num_rounds and not result.is_pinned
    }


def _limit_s(test: ScreeningTest, seconds: float = 0.0) -> float:
    """Wall seconds after which a task of a test is ended."""
    return LIMIT_FLOOR_S + LIMIT_FACTOR * (seconds + test.least_s)


def _with_process(kind: str, observations: Iterable[Observation]) -> tuple[Observation, ...]:
    return tuple(replace(o, conditions={**o.conditions, "process": kind}) for o in observations)


def _rounds(kind: str, results: Iterable[Result]) -> tuple[Observation, ...]:
    return _with_process(kind, (o for r in results for o in r.rounds))


def _compact(observations: Sequence[Observation]) -> tuple[Observation, ...]:
    """Clean observations of many units under one set of conditions as one; the rest as they are."""
    merged: dict[tuple[object, ...], Observation] = {}
    bad = []
    for seen in observations:
        if seen.is_miscompare:
            bad.append(seen)
            continue
        conditions = tuple(sorted(seen.conditions.items()))
        devices = tuple(sorted({(p.device, p.role) for p in seen.parties}))
        key = (seen.site, seen.value_class, conditions, devices)
        other = merged.get(key)
        merged[key] = (
            seen
            if other is None
            else replace(
                seen,
                parties=tuple(dict.fromkeys((*other.parties, *seen.parties))),
                num_comparisons=other.num_comparisons + seen.num_comparisons,
            )
        )
    return (*bad, *merged.values())
