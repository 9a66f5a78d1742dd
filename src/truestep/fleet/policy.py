# SPDX-License-Identifier: Apache-2.0
"""What is to be done with a node: a pure function of its records, its state and the bounds.

A single event removes nobody. A node leaves the pool when it failed in several runs that the
controller issued, each confirmed by repeats in a fresh process and each with a contrast that points
at this node; then it is bounded how many may be out, and every way out has a way back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from truestep.action import REMOVING, Action, ActionKind, bound_of_nodes_out
from truestep.reason import Owner, Reason
from truestep.record import Record, RecordKind
from truestep.transition import NodeState
from truestep.verdict import Outcome, Scope


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
        retests: Retests without a result before a person is asked.
        repairs: Repairs after which a node that fails again is retired.
        fresh_s: Age at which evidence is screened again instead of acted on.
        most_out: Nodes that may be out at a time, however large the fleet.
        share_out: Share of the eligible nodes that may be out.
        breaker: Removals wanted at once above which all are held: then it is not the nodes.
    """

    strikes: int = 2
    passes: int = 1
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Dossier:
    """All that is known of one node.

    Attributes:
        node: Its identity.
        state: Where it is in its life.
        records: Its records, in order. Withdrawn ones may be among them.
        issued: One-time run ids that the controller gave out. Other records cause a retest at most.
    """

    node: str
    state: NodeState
    records: tuple[Record, ...]
    issued: frozenset[str] = frozenset()


OWN_HARDWARE = (Scope.UNIT, Scope.DEVICE, Scope.HOST_CPU, Scope.HOST_MEMORY)
KNOWN_TO_THE_DRIVER = (Reason.ROW_REMAP_FAILED, Reason.RECOVERY_REQUIRED)
CLEAN_SLATE = (NodeState.AVAILABLE, NodeState.PROBATION)
WAITING = (NodeState.DRAINING, NodeState.IN_REPAIR, NodeState.RETIRED)


def decide(dossier: Dossier, rules: Rules, *, now_s: float) -> Action:
    """The one thing to do next with a node. Dry run; whoever carries it out says otherwise.

    Guarantees:
        Never removes a node for fewer than `strikes` issued, confirmed and contrasted runs; never
        acts on what is older than `fresh_s`; the same dossier gives the same action.
    """
    if dossier.state in WAITING:
        return _action(dossier, ActionKind.NONE, Reason.PASSED)
    if dossier.state in (NodeState.QUARANTINED, NodeState.HELD_FOR_STUDY):
        return _after_quarantine(dossier, rules)
    if dossier.state is NodeState.PROBATION:
        return _on_probation(dossier, rules)
    return _in_the_pool(dossier, rules, now_s)


def _in_the_pool(dossier: Dossier, rules: Rules, now_s: float) -> Action:
    recent = _recent(dossier.records)
    against = [r for r in recent if _speaks_against(r)]
    if not against:
        return _action(dossier, ActionKind.NONE, Reason.PASSED)
    struck = _strikes(recent, dossier.issued)
    if now_s - max(r.time_s for r in against) > rules.fresh_s:
        return _action(dossier, ActionKind.RETEST, Reason.SCREENING_STALE)
    if len(struck) >= rules.strikes:
        return _action(dossier, ActionKind.DRAIN, Reason.RETEST_FAILED, struck.values())
    if len({r.run_id for r in recent if _is_open(r)}) > rules.retests:
        return _action(dossier, ActionKind.HOLD, Reason.CONTRAST_NEEDED, struck.values())
    return _action(dossier, ActionKind.RETEST, Reason.SCREENING_DUE, struck.values())


def bound(
    wanted: Sequence[Action], *, num_out: int, num_eligible: int, rules: Rules
) -> tuple[tuple[Action, ...], tuple[Action, ...]]:
    """The actions that may be carried out, and those that are held with an alert.

    Args:
        wanted: In order of urgency.
        num_out: Nodes that are out already.
        num_eligible: Nodes on which this fleet can act at all.
        rules: The bounds.

    Guarantees:
        Never more nodes out than min(number, share of eligible nodes); where the breaker trips no
        node is removed; other actions are not touched; nothing is lost.
    """
    removing = [a for a in wanted if a.kind in REMOVING]
    room = bound_of_nodes_out(num_eligible=num_eligible, most=rules.most_out, share=rules.share_out)
    free = 0 if len(removing) > rules.breaker else max(0, room - num_out)
    allowed = {a.key for a in removing[:free]}
    may = tuple(a for a in wanted if a.kind not in REMOVING or a.key in allowed)
    held = tuple(
        replace(a, kind=ActionKind.HOLD, reason=Reason.BOUND_REACHED.value)
        for a in removing
        if a.key not in allowed
    )
    return may, held


def debt_s(dossier: Dossier, *, now_s: float) -> float:
    """How long a node has gone without a pass, doubled for each run that speaks against it.

    A node that never passed owes everything: infinity.
    """
    passed = [r.time_s for r in dossier.records if r.verdict and r.verdict.outcome is Outcome.PASS]
    if not passed:
        return float("inf")
    doubts = {r.run_id for r in _recent(dossier.records) if _speaks_against(r)}
    return float((now_s - max(passed)) * 2 ** len(doubts))


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


def _on_probation(dossier: Dossier, rules: Rules) -> Action:
    recent = _recent(dossier.records)
    struck = _strikes(recent, dossier.issued)
    records = [_evidence(dossier), *struck.values()]
    if struck and len({i for ids in records for i in ids}) > 1:
        return _action(dossier, ActionKind.QUARANTINE, Reason.RETEST_FAILED, records)
    if any(_speaks_against(r) for r in recent):
        return _action(dossier, ActionKind.RETEST, Reason.SCREENING_DUE, struck.values())
    passes = {r.run_id for r in recent if r.run_id in dossier.issued and _is_pass(r)}
    if len(passes) >= rules.passes:
        return _action(dossier, ActionKind.RELEASE, Reason.PASSED)
    return _action(dossier, ActionKind.RETEST, Reason.REPAIR_DONE)


def _evidence(dossier: Dossier) -> list[str]:
    """The records on which the transitions of a node rest, each once."""
    ids = (i for r in dossier.records if r.transition for i in r.transition.records)
    return list(dict.fromkeys(ids))


def _recent(records: Sequence[Record]) -> list[Record]:
    """Screenings since the node came into the pool or onto probation, withdrawn ones left out."""
    withdrawn = {r.withdraws for r in records if r.withdraws}
    since = 0
    for number, record in enumerate(records):
        if record.transition is not None and record.transition.after in CLEAN_SLATE:
            since = number + 1
    return [
        r
        for r in records[since:]
        if r.kind is RecordKind.SCREENING and r.verdict is not None and r.id not in withdrawn
    ]


def _strikes(records: Iterable[Record], issued: frozenset[str]) -> dict[str, list[str]]:
    """Record ids by failing run: issued, confirmed, and with a contrast that points at the node."""
    struck: dict[str, list[str]] = {}
    for record in records:
        if record.run_id in issued and _is_strike(record):
            struck.setdefault(record.run_id, []).append(record.id)
    return struck


def _is_strike(record: Record) -> bool:
    verdict = record.verdict
    if verdict is None or verdict.outcome is not Outcome.FAIL or not verdict.is_confirmed:
        return False
    is_named = verdict.suspect is not None and verdict.suspect.scope in OWN_HARDWARE
    return is_named or verdict.reason in KNOWN_TO_THE_DRIVER


def _speaks_against(record: Record) -> bool:
    """Whether a record is reason to look again: a fail, or an unknown that hardware may cause."""
    verdict = record.verdict
    if verdict is None or verdict.outcome is Outcome.PASS:
        return False
    return verdict.outcome is Outcome.FAIL or verdict.reason.owner is Owner.HARDWARE


def _is_open(record: Record) -> bool:
    return record.verdict is not None and record.verdict.outcome is not Outcome.PASS


def _is_pass(record: Record) -> bool:
    return record.verdict is not None and record.verdict.outcome is Outcome.PASS


def _action(
    dossier: Dossier, kind: ActionKind, reason: Reason, records: Iterable[Iterable[str]] = ()
) -> Action:
    ids = tuple(dict.fromkeys(i for group in records for i in group))
    return Action(kind=kind, node=dossier.node, reason=reason.value, records=ids)
