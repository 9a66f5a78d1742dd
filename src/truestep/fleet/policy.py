# SPDX-License-Identifier: Apache-2.0
"""What is to be done with a node: a pure function of its records, its state and the bounds.

A single event removes nobody. A node leaves the pool when it failed in several runs that the
controller issued, each confirmed by repeats in a fresh process and each with a contrast that points
at this node; then it is bounded how many may be out, and every way out has a way back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import takewhile

from truestep.action import REMOVING, Action, ActionKind, bound_of_nodes_out
from truestep.reason import Owner, Reason
from truestep.record import Record, RecordKind
from truestep.transition import NodeState
from truestep.verdict import Outcome, Scope, merge_outcomes


class Occasion(StrEnum):
    """When a node is screened, and at which level."""

    INSTALL = "install"
    REPAIR = "repair"
    RECLAIM = "reclaim"
    IDLE = "idle"

    @property
    def level(self) -> int:
        """4 before the first use and after a repair, 3 after a job, 2 in between."""
        return {"install": 4, "repair": 4, "reclaim": 3, "idle": 2}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How much evidence is enough, and how many nodes may be out.

    Attributes:
        strikes: Failing runs before a node is taken out, at least two.
        passes: Passing runs that end a probation.
        clears: Passing runs in a row after which a suspect takes jobs again.
        retests: Retests without a result before a person is asked.
        repairs: Repairs after which a node that fails again is retired.
        fresh_s: Age at which evidence is screened again instead of acted on.
        most_out: Nodes that may be out at a time, however large the fleet.
        share_out: Share of the eligible nodes that may be out.
        breaker: Removals wanted at once above which all are held: then it is not the nodes.
    """

    strikes: int = 2
    passes: int = 1
    clears: int = 2
    retests: int = 3
    repairs: int = 2
    fresh_s: float = 3 * 86_400.0
    most_out: int = 2
    share_out: float = 0.05
    breaker: int = 4

    def __post_init__(self) -> None:
        if self.strikes < 2:
            raise ValueError(
                f"strikes must be at least 2, got {self.strikes!r}: a single run removes nobody."
            )
        counts = (self.passes, self.clears, self.retests)
        if min(counts) < 1:
            raise ValueError(
                f"passes, clears and retests must be at least 1, got {counts}: "
                "nothing is cleared or given up without a run."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dossier:
    """All that is known of one node.

    Attributes:
        node: Its identity.
        state: Where it is in its life.
        records: Its records, in order. Withdrawn ones may be among them.
        issued: One-time run ids that the controller gave out. Other records cause a retest at most.
        contrasted: Failing records of tests that other nodes, alike in model and environment, pass.
        alike: Failing records of tests that most of the nodes alike fail, too: no node's fault.
        last_pass_s: When it last passed a run as a whole; None if never.
    """

    node: str
    state: NodeState
    records: tuple[Record, ...]
    issued: frozenset[str] = frozenset()
    contrasted: frozenset[str] = frozenset()
    alike: frozenset[str] = frozenset()
    last_pass_s: float | None = None


OWN_HARDWARE = (Scope.UNIT, Scope.DEVICE, Scope.HOST_CPU, Scope.HOST_MEMORY)
KNOWN_TO_THE_DRIVER = (Reason.ROW_REMAP_FAILED, Reason.RECOVERY_REQUIRED)
HEARD = (RecordKind.SCREENING, RecordKind.WATCH)
CLEAN_SLATE = (NodeState.AVAILABLE, NodeState.PROBATION)
WAITING = (NodeState.DRAINING, NodeState.IN_REPAIR, NodeState.RETIRED, NodeState.HELD_FOR_STUDY)


def decide(dossier: Dossier, rules: Rules, *, now_s: float) -> Action:
    """The one thing to do next with a node. Dry run; whoever carries it out says otherwise.

    Guarantees:
        Never removes a node for fewer than `strikes` issued, confirmed and contrasted runs; never
        acts on what is older than `fresh_s`; the same dossier gives the same action.
    """
    if dossier.state in WAITING:
        return _action(dossier, ActionKind.NONE, Reason.PASSED)
    if dossier.state is NodeState.QUARANTINED:
        return _after_quarantine(dossier, rules)
    recent = _recent(dossier)
    if dossier.state is NodeState.PROBATION:
        return _on_probation(dossier, recent, rules)
    return _in_the_pool(dossier, recent, rules, now_s)


def outcomes_by_run(records: Iterable[Record]) -> dict[str, Outcome]:
    """The outcome of each run as a whole, in order of its first record: a pass is all passed."""
    runs: dict[str, list[Outcome]] = {}
    for record in records:
        if record.verdict is not None:
            runs.setdefault(record.run_id, []).append(record.verdict.outcome)
    return {run_id: merge_outcomes(outcomes) for run_id, outcomes in runs.items()}


def strikes(dossier: Dossier) -> tuple[str, ...]:
    """The records since the clean slate that count against the node."""
    return tuple(i for ids in _strikes(dossier, _recent(dossier)).values() for i in ids)


def is_cleared(dossier: Dossier, rules: Rules) -> bool:
    """Whether a node that was screened may take jobs: its last run passed, or enough in a row."""
    runs = _outcomes_of_issued(dossier, _recent(dossier))
    in_a_row = len(list(takewhile(lambda outcome: outcome is Outcome.PASS, reversed(runs))))
    return in_a_row >= (rules.clears if in_a_row < len(runs) else 1)


def bound(
    wanted: Sequence[Action], *, out: Collection[str], num_eligible: int, rules: Rules
) -> tuple[tuple[Action, ...], tuple[Action, ...]]:
    """The actions that may be carried out, and those that are held with an alert.

    Args:
        wanted: In order of urgency.
        out: Nodes that are out already; what else is done to them needs no room.
        num_eligible: Nodes on which this fleet can act at all.
        rules: The bounds.

    Guarantees:
        Never more nodes out than min(number, share of eligible nodes); where the breaker trips no
        node is removed; other actions are not touched; nothing is lost.
    """
    removing = [a for a in wanted if a.kind in REMOVING and a.node not in out]
    room = bound_of_nodes_out(num_eligible=num_eligible, most=rules.most_out, share=rules.share_out)
    free = 0 if len(removing) > rules.breaker else max(0, room - len(out))
    waiting = {a.key for a in removing[free:]}
    may = tuple(a for a in wanted if a.key not in waiting)
    held = tuple(
        replace(a, kind=ActionKind.HOLD, reason=Reason.BOUND_REACHED.value)
        for a in wanted
        if a.key in waiting
    )
    return may, held


def debt_s(dossier: Dossier, *, now_s: float) -> float:
    """How long a node has gone without a pass, doubled for each run that speaks against it.

    A node that never passed owes everything: infinity.
    """
    if dossier.last_pass_s is None:
        return float("inf")
    doubts = {r.run_id for r in _recent(dossier) if _speaks_against(r)}
    return float((now_s - dossier.last_pass_s) * 2 ** min(len(doubts), 16))


def _in_the_pool(dossier: Dossier, recent: Sequence[Record], rules: Rules, now_s: float) -> Action:
    against = [r for r in recent if _speaks_against(r)]
    if not against and dossier.state is not NodeState.SUSPECT:
        return _action(dossier, ActionKind.NONE, Reason.PASSED)
    struck = _strikes(dossier, recent)
    if against and now_s - max(r.time_s for r in against) > rules.fresh_s:
        return _action(dossier, ActionKind.RETEST, Reason.SCREENING_STALE)
    if struck and len(struck) + len(_earlier_strikes(dossier)) >= rules.strikes:
        evidence = [*_earlier_strikes(dossier), *struck.values()]
        return _action(dossier, ActionKind.DRAIN, Reason.RETEST_FAILED, evidence)
    if _num_open(dossier, recent) > rules.retests:
        return _action(dossier, ActionKind.HOLD, _open_reason(recent), struck.values())
    return _action(dossier, ActionKind.RETEST, Reason.SCREENING_DUE, struck.values())


def _after_quarantine(dossier: Dossier, rules: Rules) -> Action:
    evidence = _evidence(dossier)
    if len(evidence) < 2:
        # A person put it there; a person says what comes next.
        return _action(dossier, ActionKind.HOLD, Reason.PERSON_DECIDED)
    repairs = [
        r for r in dossier.records if r.transition and r.transition.after is NodeState.IN_REPAIR
    ]
    kind = ActionKind.RETIRE if len(repairs) >= rules.repairs else ActionKind.REPAIR
    return _action(dossier, kind, Reason.RETEST_FAILED, [evidence])


def _on_probation(dossier: Dossier, recent: Sequence[Record], rules: Rules) -> Action:
    struck = _strikes(dossier, recent)
    records = [_evidence(dossier), *struck.values()]
    if struck and len({i for ids in records for i in ids}) > 1:
        return _action(dossier, ActionKind.QUARANTINE, Reason.RETEST_FAILED, records)
    if _num_open(dossier, recent) > rules.retests:
        return _action(dossier, ActionKind.HOLD, _open_reason(recent), struck.values())
    if any(_speaks_against(r) for r in recent):
        return _action(dossier, ActionKind.RETEST, Reason.SCREENING_DUE, struck.values())
    runs = _outcomes_of_issued(dossier, recent)
    if runs.count(Outcome.PASS) >= rules.passes:
        return _action(dossier, ActionKind.RELEASE, Reason.PASSED)
    return _action(dossier, ActionKind.RETEST, Reason.REPAIR_DONE)


def _evidence(dossier: Dossier) -> list[str]:
    """The records on which the transitions of a node rest, each once."""
    ids = (i for r in dossier.records if r.transition for i in r.transition.records)
    return list(dict.fromkeys(ids))


def _since(records: Sequence[Record], states: Collection[NodeState]) -> int:
    """The number of the first record after the node last came into one of these states."""
    since = 0
    for number, record in enumerate(records):
        if record.transition is not None and record.transition.after in states:
            since = number + 1
    return since


def _recent(dossier: Dossier) -> list[Record]:
    """Screenings since the node came into the pool or onto probation, withdrawn ones left out.

    And what others said of it, until a screening that the controller issued passes.
    """
    withdrawn = {r.withdraws for r in dossier.records if r.withdraws}
    judged = [
        r
        for r in dossier.records[_since(dossier.records, CLEAN_SLATE) :]
        if r.kind in HEARD and r.verdict is not None and r.id not in withdrawn
    ]
    passed = [n for n, r in enumerate(judged) if _is_issued_pass(r, dossier)]
    answered = passed[-1] if passed else -1
    return [r for n, r in enumerate(judged) if r.kind is RecordKind.SCREENING or n > answered]


def _is_issued_pass(record: Record, dossier: Dossier) -> bool:
    is_pass = record.verdict is not None and record.verdict.outcome is Outcome.PASS
    return is_pass and record.kind is RecordKind.SCREENING and record.run_id in dossier.issued


def _strikes(dossier: Dossier, records: Iterable[Record]) -> dict[str, list[str]]:
    """Record ids by failing run: issued, confirmed, and with a contrast that points at the node."""
    struck: dict[str, list[str]] = {}
    for record in records:
        if record.run_id in dossier.issued and _is_strike(record, dossier):
            struck.setdefault(record.run_id, []).append(record.id)
    return struck


def _earlier_strikes(dossier: Dossier) -> list[tuple[str, ...]]:
    """The records of earlier suspicions since the last repair, from which the node was cleared."""
    withdrawn = {r.withdraws for r in dossier.records if r.withdraws}
    start = _since(dossier.records, (NodeState.PROBATION,))
    end = _since(dossier.records, CLEAN_SLATE)
    found = (r.transition for r in dossier.records[start:end] if r.transition)
    rests_on = (t.records for t in found if t.after is NodeState.SUSPECT)
    return [ids for ids in rests_on if ids and not withdrawn.intersection(ids)]


def _is_strike(record: Record, dossier: Dossier) -> bool:
    verdict = record.verdict
    is_fail = verdict is not None and verdict.outcome is Outcome.FAIL and verdict.is_confirmed
    if verdict is None or not is_fail or record.kind is not RecordKind.SCREENING:
        return False
    if verdict.reason in KNOWN_TO_THE_DRIVER:
        return True
    is_named = verdict.suspect is not None and verdict.suspect.scope in OWN_HARDWARE
    return record.id not in dossier.alike and (is_named or record.id in dossier.contrasted)


def _speaks_against(record: Record) -> bool:
    """Whether a record is reason to look again: a fail, or an unknown that hardware may cause."""
    verdict = record.verdict
    if verdict is None or verdict.outcome is Outcome.PASS:
        return False
    return verdict.outcome is Outcome.FAIL or verdict.reason.owner is Owner.HARDWARE


def _outcomes_of_issued(dossier: Dossier, records: Iterable[Record]) -> list[Outcome]:
    return list(outcomes_by_run(r for r in records if r.run_id in dossier.issued).values())


def _num_open(dossier: Dossier, recent: Sequence[Record]) -> int:
    """Runs without a pass since a person last looked."""
    decided = [
        r.time_s
        for r in dossier.records
        if r.transition is not None and r.transition.reason is Reason.PERSON_DECIDED
    ]
    runs = [r for r in recent if r.kind is RecordKind.SCREENING]
    later = [r for r in runs if not decided or r.time_s > max(decided)]
    return sum(outcome is not Outcome.PASS for outcome in outcomes_by_run(later).values())


def _open_reason(recent: Iterable[Record]) -> Reason:
    """Why a person is asked: nobody can be blamed, or nothing could be judged at all."""
    verdicts = [r.verdict for r in recent if r.verdict and r.verdict.outcome is not Outcome.PASS]
    if any(v.outcome is Outcome.FAIL for v in verdicts):
        return Reason.CONTRAST_NEEDED
    return verdicts[-1].reason


def _action(
    dossier: Dossier, kind: ActionKind, reason: Reason, records: Iterable[Iterable[str]] = ()
) -> Action:
    ids = tuple(dict.fromkeys(i for group in records for i in group))
    return Action(kind=kind, node=dossier.node, reason=reason.value, records=ids)
