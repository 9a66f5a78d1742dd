# SPDX-License-Identifier: Apache-2.0
"""All that is known of each node, put together for the policy."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from truestep.fleet.policy import Dossier, Rules
from truestep.record import Record, RecordKind
from truestep.store.history import Entry, History
from truestep.verdict import Outcome


def dossiers(
    history: History, rules: Rules, *, now_s: float, keys: Collection[int] | None = None
) -> Iterator[tuple[Entry, Dossier]]:
    """Entry and dossier of each node, or of those asked for.

    What a node fails is held against nodes alike: the same test, model and environment, in the time
    in which evidence is fresh. Where others pass it, that is the contrast which a node with one
    device cannot give itself; where most of them fail it, it is no node's fault.
    """
    since_s = now_s - rules.fresh_s
    for entry, records, issued in history.recent(keys):
        contrasted, alike = _compared(history, entry, records, since_s)
        yield (
            entry,
            Dossier(
                node=entry.identity or entry.name,
                state=entry.state,
                records=records,
                issued=issued,
                contrasted=contrasted,
                alike=alike,
                last_pass_s=entry.last_pass_s,
            ),
        )


def dossier_of(history: History, key: int, rules: Rules, *, now_s: float) -> tuple[Entry, Dossier]:
    """Entry and dossier of one node."""
    (found,) = dossiers(history, rules, now_s=now_s, keys={key})
    return found


def _compared(
    history: History, entry: Entry, records: Sequence[Record], since_s: float
) -> tuple[frozenset[str], frozenset[str]]:
    contrasted, alike = set(), set()
    for head in records:
        if not _is_fail(head):
            continue
        _, record = history.record(head.id)
        if record.environment is None or record.device is None:
            continue
        nodes = history.tally(
            subject=record.subject,
            model=record.device.model,
            environment=record.environment.key,
            since_s=since_s,
        )
        num_sound = len(nodes.get(Outcome.PASS, frozenset()) - {entry.key})
        num_failing = len(nodes.get(Outcome.FAIL, frozenset()) | {entry.key})
        if num_sound >= num_failing:
            contrasted.add(record.id)
        elif num_failing > 1:
            alike.add(record.id)
    return frozenset(contrasted), frozenset(alike)


def _is_fail(record: Record) -> bool:
    verdict = record.verdict
    is_screening = record.kind is RecordKind.SCREENING
    return is_screening and verdict is not None and verdict.outcome is Outcome.FAIL
