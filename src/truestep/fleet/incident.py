# SPDX-License-Identifier: Apache-2.0
"""Incidents: from the first suspicion of a node to its return, out of records alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from truestep.fleet.policy import outcomes_by_run
from truestep.record import Record, RecordKind
from truestep.store.history.entry import Entry, Run
from truestep.transition import NodeState
from truestep.verdict import Outcome

JOB, NOTE, VENDOR = "job/", "note", "vendor_outcome"
"""Subjects of watch records: a job that ended, a note, what the vendor found."""

OVER = (NodeState.AVAILABLE, NodeState.RETIRED)
FOLLOW_UP = {
    NodeState.AVAILABLE: "None: the node takes jobs again.",
    NodeState.RETIRED: "None: the node is retired.",
    NodeState.SUSPECT: "Screen the node again.",
    NodeState.SCREENING: "Wait for the screening.",
    NodeState.DRAINING: "Wait until its jobs have ended.",
    NodeState.QUARANTINED: "Repair the node, or hold it for study.",
    NodeState.HELD_FOR_STUDY: "Compare the node with a sound one, then repair it.",
    NodeState.IN_REPAIR: "When it is repaired: truestep fleet release --repaired NODE",
    NodeState.PROBATION: "Screen it: truestep fleet campaign --occasion repair",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """What a test saw, over all its failing records.

    Attributes:
        test: Its id.
        device: Serial or address of the device.
        num_failing, num_runs: Runs in which it failed, of those that it was in.
        sites: Operations and precisions.
        dtypes: Element types.
        bits: Positions of the bits that differed.
        spreads, changes: How the positions lay, and what was done to the values.
        references: Where the expected values came from.
    """

    test: str
    device: str
    num_failing: int
    num_runs: int
    sites: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    bits: tuple[int, ...] = ()
    spreads: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    references: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobToDistrust:
    """A job that ended on the node in the time in which it went bad.

    Attributes:
        id: The scheduler's.
        uid: Whose it was; empty where that is not known.
        end_s: When it ended, seconds since the epoch.
    """

    id: str
    uid: str
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Something that was done, or a state that the node came into."""

    time_s: float
    what: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One incident of one node.

    Attributes:
        id: Begins the id of the record that opened it.
        node, identity: The node.
        devices: Model, firmware and serial of those that failed.
        symptoms: What the tests saw.
        trigger: Occasion of the run that found it.
        run_id: That run.
        suspects: What the evidence points at.
        sound_s: Last run before it that passed as a whole; None if there is none.
        bad_s: First confirmed fail; None if there is none. In between the node went bad.
        jobs: Those that ended after `sound_s`, while the node was in the pool.
        opened_s: First suspicion.
        out_s: When the node stopped taking jobs; None if it did not.
        closed_s: When it was available or retired again; None while it is open.
        steps: In order.
        follow_up: What comes next.
        lessons: Notes of people.
        vendor: What the vendor found.
        evidence: Ids of the records it rests on.
        is_simulated: Came from a rehearsal.
    """

    id: str
    node: str
    identity: str
    devices: tuple[str, ...]
    symptoms: tuple[Symptom, ...]
    trigger: str
    run_id: str
    suspects: tuple[str, ...]
    sound_s: float | None
    bad_s: float | None
    jobs: tuple[JobToDistrust, ...]
    opened_s: float
    out_s: float | None
    closed_s: float | None
    steps: tuple[Step, ...]
    follow_up: str
    lessons: tuple[str, ...]
    vendor: tuple[str, ...]
    evidence: tuple[str, ...]
    is_simulated: bool

    @property
    def time_to_detection_s(self) -> float | None:
        """At most so long was it bad before it was found: from the last pass to the first fail."""
        is_known = self.sound_s is not None and self.bad_s is not None
        return self.bad_s - self.sound_s if is_known else None  # type: ignore[operator]

    @property
    def time_to_repair_s(self) -> float | None:
        """From the first suspicion to the return."""
        return None if self.closed_s is None else self.closed_s - self.opened_s


def incidents(entry: Entry, records: Sequence[Record], runs: Iterable[Run]) -> list[Incident]:
    """The incidents of one node, oldest first.

    Args:
        entry: The node.
        records: All its records, in order.
        runs: Those that were issued for it. What other runs say is no evidence.
    """
    issued = {run.id: run for run in runs}
    spans: list[tuple[int, int]] = []
    start: int | None = None
    for number, record in enumerate(records):
        step = record.transition
        if step is None:
            continue
        if step.after is NodeState.SUSPECT and start is None:
            start = number
        elif step.after in OVER and start is not None:
            spans.append((start, number + 1))
            start = None
    if start is not None:
        spans.append((start, len(records)))
    return [_incident(entry, records, first, end, issued) for first, end in spans]


def _incident(
    entry: Entry, records: Sequence[Record], first: int, end: int, issued: dict[str, Run]
) -> Incident:
    opening = records[first]
    slate = _since_over(records[:first])
    span = records[slate:end]
    screenings = [r for r in span if r.kind is RecordKind.SCREENING and r.run_id in issued]
    fails = [r for r in screenings if r.verdict and r.verdict.outcome is Outcome.FAIL]
    confirmed = [r.time_s for r in fails if r.verdict and r.verdict.is_confirmed]
    bad_s = min(confirmed, default=None)
    sound_s = _last_pass_s(records[:end], issued, before_s=bad_s or opening.time_s)
    steps = [r for r in records[first:end] if r.transition or r.action]
    out_s = _first_s(steps, NodeState.DRAINING)
    state = next(r.transition.after for r in reversed(steps) if r.transition)
    found = fails[0] if fails else opening
    is_over = state in OVER
    return Incident(
        id=opening.id[:12],
        node=entry.name,
        identity=entry.identity,
        devices=_unique(_device(r) for r in fails if r.device),
        symptoms=symptoms(fails, screenings),
        trigger=issued[found.run_id].occasion if found.run_id in issued else "",
        run_id=found.run_id,
        suspects=_unique(_suspect(r) for r in fails),
        sound_s=sound_s,
        bad_s=bad_s,
        jobs=_jobs(records, since_s=sound_s, until_s=_first_s(steps, NodeState.QUARANTINED)),
        opened_s=opening.time_s,
        out_s=out_s,
        closed_s=steps[-1].time_s if is_over else None,
        steps=tuple(_step(r) for r in steps),
        follow_up=FOLLOW_UP[state],
        lessons=_details(records[first:end], NOTE),
        vendor=_details(records[first:], VENDOR),
        evidence=_unique([opening.id, *(r.id for r in fails)]),
        is_simulated=any(r.is_simulated for r in (opening, *fails)),
    )


def _since_over(records: Sequence[Record]) -> int:
    """The number of the first record after the node was last available."""
    over = [n for n, r in enumerate(records) if r.transition and r.transition.after in OVER]
    return over[-1] + 1 if over else 0


def _last_pass_s(
    records: Sequence[Record], issued: dict[str, Run], *, before_s: float
) -> float | None:
    screenings = [r for r in records if r.kind is RecordKind.SCREENING and r.run_id in issued]
    passed = {i for i, o in outcomes_by_run(screenings).items() if o is Outcome.PASS}
    times = [r.time_s for r in screenings if r.run_id in passed and r.time_s < before_s]
    return max(times, default=None)


def symptoms(fails: Sequence[Record], screenings: Sequence[Record]) -> tuple[Symptom, ...]:
    """What each failing test saw on each device, over all records."""
    found: dict[tuple[str, str], list[Record]] = {}
    for record in fails:
        found.setdefault((record.subject, _address(record)), []).append(record)
    return tuple(
        _symptom(test, device, own, [r for r in screenings if _is_of(r, test, device)])
        for (test, device), own in sorted(found.items())
    )


def _symptom(test: str, device: str, own: Sequence[Record], tried: Sequence[Record]) -> Symptom:
    seen = [o for r in own for o in r.observations if o.miscompare is not None]
    differing = [o.miscompare for o in seen if o.miscompare is not None]
    return Symptom(
        test=test,
        device=device,
        num_failing=len({r.run_id for r in own}),
        num_runs=len({r.run_id for r in tried}),
        sites=_unique(o.site for o in seen),
        dtypes=_unique(m.dtype for m in differing),
        bits=tuple(sorted({bit for m in differing for bit in m.bits})),
        spreads=_unique(m.spread.value for m in differing),
        changes=_unique(m.change.value for m in differing),
        references=_unique(o.reference.kind.value for o in seen),
    )


def _is_of(record: Record, test: str, device: str) -> bool:
    return record.subject == test and _address(record) == device


def _address(record: Record) -> str:
    device = record.device
    return "" if device is None else device.serial or device.id


def _device(record: Record) -> str:
    device = record.device
    assert device is not None
    parts = (device.model, device.firmware and f"firmware {device.firmware}", _address(record))
    return ", ".join(part for part in parts if part)


def _suspect(record: Record) -> str:
    suspect = record.verdict.suspect if record.verdict else None
    return f"{suspect.scope} {suspect.name}".strip() if suspect else ""


def _jobs(
    records: Iterable[Record], *, since_s: float | None, until_s: float | None
) -> tuple[JobToDistrust, ...]:
    """Jobs that ended after the last pass, and before the node was out and empty."""
    found = []
    for record in records:
        is_late = until_s is not None and record.time_s > until_s
        is_job = record.kind is RecordKind.WATCH and record.subject.startswith(JOB)
        if not is_job or is_late or (since_s is not None and record.time_s <= since_s):
            continue
        after = record.context.after if record.context else None
        uid = str(after.readings.get("uid", "")) if after else ""
        job = JobToDistrust(id=record.subject.removeprefix(JOB), uid=uid, end_s=record.time_s)
        found.append(job)
    return tuple(sorted(found, key=lambda job: (job.end_s, job.id)))


def _first_s(steps: Iterable[Record], state: NodeState) -> float | None:
    times = (r.time_s for r in steps if r.transition and r.transition.after is state)
    return next(times, None)


def _step(record: Record) -> Step:
    if record.transition is not None:
        step = record.transition
        return Step(time_s=record.time_s, what=step.after.value, reason=step.reason.value)
    assert record.action is not None
    what, reason = f"action {record.action.kind}", record.action.reason
    return Step(time_s=record.time_s, what=what, reason=reason)


def _details(records: Iterable[Record], subject: str) -> tuple[str, ...]:
    own = (r for r in records if r.kind is RecordKind.WATCH and r.subject == subject)
    return tuple(r.verdict.detail for r in own if r.verdict)


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text))
