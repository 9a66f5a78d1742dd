# SPDX-License-Identifier: Apache-2.0
"""What goes to the vendor with a bad device: facts, their intervals, and the clean contrast."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from truestep.errors import ConfigError
from truestep.fleet.incident import VENDOR, Symptom, symptoms
from truestep.fleet.reproducer import LARGEST
from truestep.fleet.vendor_tools import PREFIX
from truestep.judging.power import interval
from truestep.record import Artifact, Record, RecordKind
from truestep.store.history import History, Placement
from truestep.verdict import Outcome

MOST_SEEDS = 8


class VendorOutcome(StrEnum):
    """What the vendor found."""

    CONFIRMED = "confirmed"
    NO_FAULT_FOUND = "no-fault-found"
    SOFTWARE = "software"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCount:
    """How often a test failed on the device, and how it went on others of its model.

    Attributes:
        test: Its id.
        num_failing, num_runs: Runs.
        low, high: 95 % Clopper-Pearson interval of the rate of failing runs.
        sound_elsewhere, failing_elsewhere: Nodes alike in model and environment, by latest outcome.
    """

    test: str
    num_failing: int
    num_runs: int
    low: float
    high: float
    sound_elsewhere: int
    failing_elsewhere: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One run in which the device was tested."""

    time_s: float
    node: str
    run_id: str
    outcome: Outcome
    tests: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A reading while tests failed, and while they passed; None where it was not read."""

    name: str
    failing: tuple[float, float] | None
    passing: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOff:
    """All that a vendor needs to repeat and judge a fault.

    Attributes:
        serial: Of the device, or of the node where no device is named.
        placements: In which nodes it was, with model and firmware.
        tests: Counts, failing ones first.
        symptoms: What the failing tests saw.
        time_line: Runs, oldest first, across nodes.
        context: Readings while it failed and while it passed.
        said: What other tools said: evidence, no verdict of ours.
        attached: Their files.
        evidence: Ids of the failing records.
        is_simulated: Some of it came from a rehearsal.
    """

    serial: str
    placements: tuple[Placement, ...]
    tests: tuple[FailureCount, ...]
    symptoms: tuple[Symptom, ...]
    time_line: tuple[Moment, ...]
    context: tuple[Range, ...]
    said: tuple[str, ...]
    attached: tuple[Artifact, ...]
    evidence: tuple[str, ...]
    is_simulated: bool


def hand_off(history: History, serial: str) -> tuple[HandOff, tuple[Record, ...]]:
    """The hand-off of a device by its serial, or of a node, and the failing records.

    Raises:
        ConfigError: There is no such device or node, or nothing of it failed in an issued run.
    """
    placements = history.placements(serial)
    if placements:
        serial = placements[0].serial
        kept = list(history.records_of_device(serial))
    else:
        entry = history.find(serial)
        placements = history.devices_of(entry.key)
        kept = [(entry.key, record) for record in history.records(entry.key)]
    names = {key: history.entry(key).name for key, _ in kept}
    issued = {run.id for key in names for run in history.runs_of(key)}
    tried = [
        (names[key], r)
        for key, r in kept
        if r.kind is RecordKind.SCREENING and r.verdict is not None and r.run_id in issued
    ]
    records = [r for _, r in tried]
    fails = [r for r in records if _outcome(r) is Outcome.FAIL]
    if not fails:
        raise ConfigError(
            f"a hand-off must rest on a fail in a run that the controller issued, got none for "
            f"{serial!a:.100}. Screen it first."
        )
    heard = [r for key in names for r in history.records(key, kinds={RecordKind.WATCH})]
    tools = [r for r in heard if r.subject.startswith(PREFIX) and r.verdict is not None]
    found = HandOff(
        serial=serial,
        placements=tuple(placements),
        tests=_tests(history, records, set(names)),
        symptoms=symptoms(fails, records),
        time_line=_time_line(tried),
        context=_context(records),
        said=tuple(r.verdict.detail for r in tools if r.verdict is not None),
        attached=tuple(dict.fromkeys(a for r in tools for a in r.artifacts)),
        evidence=tuple(r.id for r in fails),
        is_simulated=any(r.is_simulated for r in records),
    )
    return found, tuple(fails)


def case_of(fails: Sequence[Record]) -> dict[str, object]:
    """What the reproducer repeats: element types that failed, and seeds. No values of anybody."""
    seen = [o for r in fails for o in r.observations if o.miscompare is not None]
    dtypes = {o.miscompare.dtype for o in seen if o.miscompare is not None} & set(LARGEST)
    seeds = list(dict.fromkeys(o.seed for o in seen if o.seed is not None))[:MOST_SEEDS]
    return {
        "schema_version": 1,
        "dtypes": sorted(dtypes) or sorted(LARGEST),
        "seeds": seeds or [0],
        "tests": sorted({r.subject for r in fails}),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Of the hand-offs that a vendor judged, how many were faulty hardware.

    Attributes:
        num_confirmed, num_judged: Devices, each by its latest outcome.
        low, high: 95 % Clopper-Pearson interval of the share; (0, 1) where none was judged.
    """

    num_confirmed: int
    num_judged: int
    low: float
    high: float


def precision(records: Iterable[Record]) -> Precision:
    """From the watch records of what vendors found, in order."""
    latest: dict[str, str] = {}
    for record in records:
        after = record.context.after if record.context else None
        if record.subject == VENDOR and after is not None:
            latest[str(after.readings.get("serial", ""))] = str(after.readings.get("outcome", ""))
    outcomes = [o for o in latest.values() if o in set(VendorOutcome)]
    confirmed, judged = outcomes.count(VendorOutcome.CONFIRMED), len(outcomes)
    low, high = interval(confirmed, judged) if judged else (0.0, 1.0)
    return Precision(num_confirmed=confirmed, num_judged=judged, low=low, high=high)


def _outcome(record: Record) -> Outcome | None:
    return record.verdict.outcome if record.verdict else None


def _tests(history: History, records: Sequence[Record], own: set[int]) -> tuple[FailureCount, ...]:
    found = []
    for test in sorted({r.subject for r in records}):
        tried = [r for r in records if r.subject == test]
        failing = {r.run_id for r in tried if _outcome(r) is Outcome.FAIL}
        judged = {r.run_id for r in tried if _outcome(r) in (Outcome.FAIL, Outcome.PASS)}
        low, high = interval(len(failing), len(judged)) if judged else (0.0, 1.0)
        elsewhere = _elsewhere(history, tried, own)
        found.append(
            FailureCount(
                test=test,
                num_failing=len(failing),
                num_runs=len(judged),
                low=low,
                high=high,
                sound_elsewhere=len(elsewhere.get(Outcome.PASS, set())),
                failing_elsewhere=len(elsewhere.get(Outcome.FAIL, set())),
            )
        )
    return tuple(sorted(found, key=lambda t: (-t.num_failing, t.test)))


def _elsewhere(
    history: History, tried: Sequence[Record], own: set[int]
) -> Mapping[Outcome, set[int]]:
    alike = {
        (r.subject, r.device.model, r.environment.key)
        for r in tried
        if r.device is not None and r.environment is not None
    }
    nodes: dict[Outcome, set[int]] = {}
    for subject, model, environment in alike:
        tally = history.tally(subject=subject, model=model, environment=environment, since_s=0.0)
        for outcome, keys in tally.items():
            nodes.setdefault(outcome, set()).update(keys - own)
    return nodes


def _time_line(tried: Iterable[tuple[str, Record]]) -> tuple[Moment, ...]:
    runs: dict[str, list[tuple[str, Record]]] = {}
    for node, record in tried:
        runs.setdefault(record.run_id, []).append((node, record))
    moments = []
    for run_id, own in runs.items():
        fails = [r.subject for _, r in own if _outcome(r) is Outcome.FAIL]
        is_pass = all(_outcome(r) is Outcome.PASS for _, r in own)
        outcome = Outcome.FAIL if fails else Outcome.PASS if is_pass else Outcome.UNKNOWN
        first = min(r.time_s for _, r in own)
        moments.append(
            Moment(time_s=first, node=own[0][0], run_id=run_id, outcome=outcome, tests=tuple(fails))
        )
    return tuple(sorted(moments, key=lambda m: (m.time_s, m.run_id)))


def _context(records: Iterable[Record]) -> tuple[Range, ...]:
    seen: dict[str, dict[bool, list[float]]] = {}
    for record in records:
        for sample in record.context.samples if record.context else ():
            for name, value in sample.readings.items():
                if isinstance(value, int | float):
                    is_fail = _outcome(record) is Outcome.FAIL
                    seen.setdefault(name, {}).setdefault(is_fail, []).append(float(value))
    return tuple(
        Range(name=name, failing=_range(by.get(True)), passing=_range(by.get(False)))
        for name, by in sorted(seen.items())
    )


def _range(values: Sequence[float] | None) -> tuple[float, float] | None:
    return (min(values), max(values)) if values else None
