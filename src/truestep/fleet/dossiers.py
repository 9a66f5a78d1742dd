# SPDX-License-Identifier: Apache-2.0
"""All that is known of each node, put together for the policy."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

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
    peers = _Peers(history, since_s=now_s - rules.fresh_s)
    for entry, records, issued in history.recent(keys):
        contrasted, alike = peers.compare(entry, records)
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


@dataclass
class _Peers:
    """How the nodes of a fleet did in each test, asked once for each model and environment."""

    history: History
    since_s: float
    nodes: dict[tuple[str, str, str], Mapping[Outcome, frozenset[int]]] = field(
        default_factory=dict
    )

    def compare(
        self, entry: Entry, records: Sequence[Record]
    ) -> tuple[frozenset[str], frozenset[str]]:
        """The failing records that others pass, and those that most others fail, too."""
        contrasted, alike = set(), set()
        for head in records:
            if not _is_fail(head):
                continue
            _, record = self.history.record(head.id)
            if record.environment is None or record.device is None:
                continue
            nodes = self._did(record.subject, record.device.model, record.environment.key)
            num_sound = len(nodes.get(Outcome.PASS, frozenset()) - {entry.key})
            num_failing = len(nodes.get(Outcome.FAIL, frozenset()) | {entry.key})
            if num_sound >= num_failing:
                contrasted.add(record.id)
            elif num_failing > 1:
                alike.add(record.id)
        return frozenset(contrasted), frozenset(alike)

    def _did(self, subject: str, model: str, environment: str) -> Mapping[Outcome, frozenset[int]]:
        alike = (subject, model, environment)
        if alike not in self.nodes:
            self.nodes[alike] = self.history.tally(
                subject=subject, model=model, environment=environment, since_s=self.since_s
            )
        return self.nodes[alike]


def _is_fail(record: Record) -> bool:
    verdict = record.verdict
    is_screening = record.kind is RecordKind.SCREENING
    return is_screening and verdict is not None and verdict.outcome is Outcome.FAIL
