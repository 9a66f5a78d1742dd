# SPDX-License-Identifier: Apache-2.0
"""What a pass of a campaign will do: a pure function of dossiers, scheduler and options.

A dry run prints this plan, and a pass that acts carries out the same one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from truestep.action import REMOVING, Action, ActionKind
from truestep.fleet.life_cycle import OUT_OF_THE_POOL
from truestep.fleet.policy import Dossier, Occasion, Rules, bound, debt_s, decide
from truestep.fleet.scheduler import NodeInfo
from truestep.store.history import Entry, Run
from truestep.transition import NodeState

LIMIT_S = {1: 900.0, 2: 1200.0, 3: 3600.0, 4: 3 * 3600.0}
"""Longest that the job of a level may run: loading and repeats of failures included."""

DUE = {
    Occasion.INSTALL: frozenset({NodeState.NEW}),
    Occasion.RECLAIM: frozenset({NodeState.RECLAIMED}),
    Occasion.IDLE: frozenset({NodeState.AVAILABLE, NodeState.RECLAIMED}),
    Occasion.REPAIR: frozenset({NodeState.PROBATION}),
}
"""States in which a node is due on an occasion. A suspect is due on every one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a campaign goes about it.

    Attributes:
        id: Name of the campaign; runs carry it, and inputs follow from it.
        occasion: Why nodes are screened.
        only: Names of the nodes to look at; empty for all.
        cap: Runs at a time.
        cap_per_domain: Runs at a time in one rack or on one power domain; None for no such cap.
        budget_s: Node seconds that this campaign may book; None for no budget.
        start_within_s: A job that has not started by then is not started any more.
        limit_s: Longest that a job may run; None for that of its level.
        does_repair: Hand quarantined nodes to repair, unless a person holds them.
        rules: How much evidence is enough, and how many nodes may be out.
    """

    id: str
    occasion: Occasion
    only: frozenset[str] = frozenset()
    cap: int = 64
    cap_per_domain: int | None = None
    budget_s: float | None = None
    start_within_s: float = 4 * 3600.0
    limit_s: float | None = None
    does_repair: bool = True
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A node with all that is known of it.

    Attributes:
        entry: From the history.
        dossier: For the policy.
        info: From the scheduler; None where it does not know the node.
        run: Its open run, if there is one.
    """

    entry: Entry
    dossier: Dossier
    info: NodeInfo | None
    run: Run | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """A run to be issued: on which node, at which level, and for how long at most."""

    candidate: Candidate
    level: int
    limit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be done now.

    Attributes:
        actions: With their nodes; within the bound.
        held: Removals that wait for room, or that the breaker stopped.
        screenings: Runs to issue, most urgent first.
        waiting: Nodes that are due and cannot be screened now, with the reason.
    """

    actions: tuple[tuple[Candidate, Action], ...] = ()
    held: tuple[tuple[Candidate, Action], ...] = ()
    screenings: tuple[Screening, ...] = ()
    waiting: tuple[tuple[str, str], ...] = ()


def plan(
    candidates: Sequence[Candidate], options: Options, *, runs: Iterable[Run] = (), now_s: float
) -> Plan:
    """The plan of one pass.

    Args:
        candidates: All nodes of the fleet, also those that `only` leaves out: they count.
        options: Of the campaign.
        runs: All runs that this campaign has issued so far.
        now_s: Seconds since the epoch.

    Guarantees:
        At most `cap` open runs, `cap_per_domain` in a domain, and `budget_s` in all; never a run on
        a node that has one, that others use, or that somebody else drained.
    """
    wanted = [(c, _decided(c, options, now_s)) for c in candidates if _is_meant(c, options)]
    may, held = _bounded(wanted, candidates, options.rules)
    removed = {c.entry.key for c, a in (*may, *held) if a.kind in REMOVING}
    ready, waiting = [], []
    for candidate, action in wanted:
        if candidate.entry.key in removed or not _is_due(candidate, action, options):
            continue
        why_not = _why_not_now(candidate)
        if why_not:
            waiting.append((candidate.entry.name, why_not))
        else:
            ready.append(candidate)
    ready.sort(key=lambda c: (-_urgency(c, now_s), c.entry.name))
    return Plan(
        actions=tuple(may),
        held=tuple(held),
        screenings=tuple(_within_caps(ready, candidates, options, tuple(runs))),
        waiting=tuple(waiting),
    )


Wanted = list[tuple[Candidate, Action]]


def _decided(candidate: Candidate, options: Options, now_s: float) -> Action:
    action = decide(candidate.dossier, options.rules, now_s=now_s)
    if action.kind is ActionKind.REPAIR and not options.does_repair:
        return replace(action, kind=ActionKind.NONE)
    return action


def _is_meant(candidate: Candidate, options: Options) -> bool:
    is_chosen = not options.only or candidate.entry.name in options.only
    return is_chosen and candidate.run is None


def _bounded(
    wanted: Wanted, candidates: Sequence[Candidate], rules: Rules
) -> tuple[Wanted, Wanted]:
    """The actions to carry out and those to hold. A retest is no action here: it is a run."""
    by_node = {c.dossier.node: c for c, _ in wanted}
    out = {c.dossier.node for c in candidates if is_out(c.entry.state)}
    eligible = sum(c.entry.state is not NodeState.RETIRED for c in candidates)
    actions = [a for _, a in wanted if a.kind not in (ActionKind.NONE, ActionKind.RETEST)]
    may, held = bound(actions, out=out, num_eligible=eligible, rules=rules)
    return [(by_node[a.node], a) for a in may], [(by_node[a.node], a) for a in held]


def is_out(state: NodeState) -> bool:
    """Whether a node in this state counts against the bound. A retired one is gone for good."""
    return state in OUT_OF_THE_POOL and state is not NodeState.RETIRED


def _is_due(candidate: Candidate, action: Action, options: Options) -> bool:
    state = candidate.entry.state
    if action.kind is ActionKind.RETEST:
        return state is not NodeState.PROBATION or options.occasion is Occasion.REPAIR
    if action.kind is not ActionKind.NONE or state not in DUE[options.occasion]:
        return False
    is_done = (candidate.entry.last_screened_s or 0.0) > candidate.entry.since_s
    return not (options.occasion is Occasion.IDLE and is_done)


def _why_not_now(candidate: Candidate) -> str:
    info, state = candidate.info, candidate.entry.state
    if info is None:
        return "the scheduler does not know it"
    if info.is_down:
        return f"it is down ({' '.join(info.flags)})"
    if info.is_busy or state is NodeState.IN_USE:
        return "it is in use"
    if info.is_drained and not info.is_marked_by_us:
        return f"somebody else drained it ({info.reason})"
    if not info.is_idle and not info.is_drained:
        return f"it takes no jobs ({' '.join(info.flags)})"
    return ""


def _urgency(candidate: Candidate, now_s: float) -> float:
    return debt_s(candidate.dossier, now_s=now_s)


def level_of(state: NodeState, occasion: Occasion) -> int:
    """The level of a run: extended before the first use and after a repair."""
    if state in (NodeState.NEW, NodeState.PROBATION):
        return Occasion.REPAIR.level
    return occasion.level


def _within_caps(
    ready: Iterable[Candidate],
    candidates: Iterable[Candidate],
    options: Options,
    runs: Sequence[Run],
) -> Iterable[Screening]:
    open_now = [c for c in candidates if c.run is not None]
    room = options.cap - len(open_now)
    domains = Counter(d for c in open_now for d in _domains(c))
    booked_s = sum(run.limit_s for run in runs)
    for candidate in ready:
        level = level_of(candidate.entry.state, options.occasion)
        limit_s = options.limit_s or LIMIT_S[level]
        is_in_budget = options.budget_s is None or booked_s + limit_s <= options.budget_s
        cap = options.cap_per_domain
        has_room = cap is None or all(domains[d] < cap for d in _domains(candidate))
        if room < 1 or not is_in_budget or not has_room:
            continue
        room -= 1
        booked_s += limit_s
        domains.update(_domains(candidate))
        yield Screening(candidate=candidate, level=level, limit_s=limit_s)


def _domains(candidate: Candidate) -> list[tuple[str, str]]:
    entry = candidate.entry
    named = (("rack", entry.rack), ("power", entry.power))
    return [(kind, name) for kind, name in named if name]
