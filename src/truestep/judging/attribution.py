# SPDX-License-Identifier: Apache-2.0
"""From parties to one suspect, by contrast alone. Pure.

A suspect is named only where something that differs in one respect stayed clean: another unit of
the device, another device, another clock or thread count, the reverse direction of a link. A
majority is no contrast, and where everybody fails alike it is software or the platform.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from truestep.judging.power import chance_of_share, detection_chance
from truestep.observation import Observation, Party, Role
from truestep.verdict import Scope, Suspect

ALL_ALIKE = "every party that was asked gives wrong results"


LUCK = 0.05
"""A contrast counts only if luck explains it in fewer cases, shared out over all who were asked."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One party under one set of conditions, with its wrong and all of its comparisons."""

    device: str
    unit: str
    conditions: tuple[tuple[str, str], ...]
    wrong: int
    total: int

    @property
    def is_bad(self) -> bool:
        """Whether any comparison failed."""
        return self.wrong > 0


def luck(bad: Iterable[Cell], others: Iterable[Cell]) -> float:
    """The chance that cells no worse than the others have as many of the wrong results."""
    bad, others = list(bad), list(others)
    return chance_of_share(
        sum(c.wrong for c in bad),
        sum(c.total for c in bad),
        sum(c.wrong for c in others),
        sum(c.total for c in others),
    )


def attribute(observations: Iterable[Observation], *, subject: str = "") -> Suspect | None:
    """The one suspect that the observations single out; None where nothing differs.

    Args:
        observations: Trials of one test: first runs, repeats and contrasts. Their parties say
            who took part, their `conditions` what was varied on purpose.
        subject: Device that is being judged. Other devices that fail too are then left to their
            own verdicts, as long as one is clean.

    Guarantees:
        Never names a party without a clean contrast that luck explains in at most 5 %;
        independent of the order; where a second device fails and none is clean, no device is
        a suspect; where an input was damaged, nothing that was computed from it is.
    """
    seen = list(observations)
    if not any(o.is_miscompare for o in seen):
        return None
    damaged = [o for o in seen if o.is_miscompare and _is_input(o)]
    if damaged:
        return _suspect_input(min(str(o.parties[0]) for o in damaged))
    alone = [o for o in seen if not _is_directed(o)]
    if not any(o.is_miscompare for o in alone):
        # What goes wrong without a transfer needs no link to explain it; all else does.
        return _suspect_link([o for o in seen if _is_directed(o)])
    pairs = [o for o in alone if len({p.device for p in o.parties}) > 1]
    if any(o.is_miscompare for o in pairs):
        return _suspect_of_pairs(pairs)
    cells = _cells(alone)
    bad_devices = {c.device for c in cells if c.is_bad}
    if subject not in bad_devices and len(bad_devices) > 1:
        return _several_bad_devices(bad_devices, {c.device for c in cells} - bad_devices)
    device = subject if subject in bad_devices else min(bad_devices)
    own = [c for c in cells if c.device == device]
    others = [c for c in cells if c.device != device]
    is_everybody = bool(others) and {c.device for c in others} <= bad_devices
    named = _suspect_device(device, own, others) or _suspect_unit(device, own)
    return named if named and not is_everybody else _nobody(own, others)


def _suspect_input(name: str) -> Suspect:
    return Suspect(
        scope=Scope.INPUT_DATA,
        name=name,
        because="the input was damaged before any device computed with it",
    )


def _suspect_of_pairs(observations: Iterable[Observation]) -> Suspect:
    """The one device in all pairs that differ and in none that agree.

    Two that differ accuse each other: only a pair of others that agrees tells them apart.
    """
    tallies: dict[frozenset[str], list[int]] = defaultdict(lambda: [0, 0])
    for seen in observations:
        tally = tallies[frozenset(p.device for p in seen.parties)]
        tally[0] += int(seen.value) if seen.is_miscompare else 0
        tally[1] += seen.num_comparisons
    bad = {pair for pair, (wrong, _) in tallies.items() if wrong}
    rate = sum(tallies[pair][0] for pair in bad) / sum(tallies[pair][1] for pair in bad)
    agreeing = {
        pair
        for pair, (wrong, total) in tallies.items()
        if not wrong and 1 - detection_chance(rate, total) <= LUCK
    }
    common = frozenset.intersection(*bad).difference(*agreeing)
    if not agreeing:
        everyone = frozenset[str]().union(*bad)
        is_everyone = len(everyone) > 2 and len(bad) == math.comb(len(everyone), 2)
        return Suspect(
            scope=Scope.SOFTWARE_OR_PLATFORM if is_everyone else Scope.UNKNOWN,
            because=ALL_ALIKE if is_everyone else "no two devices agree: ask a third",
        )
    if len(common) != 1:
        return Suspect(scope=Scope.UNKNOWN, because=f"{len(bad)} pairs of devices differ")
    (device,) = common
    return Suspect(
        scope=Scope.HOST_CPU if device.startswith("cpu:") else Scope.DEVICE,
        name=device,
        because="every pair that differs holds it, and pairs without it agree",
    )


def _suspect_device(device: str, own: list[Cell], others: list[Cell]) -> Suspect | None:
    """The device, or its one bad unit, if it is worse than all others together."""
    asked = {c.device for c in others}
    if not others or luck(own, others) > LUCK / (len(asked) + 1):
        return None
    clean = sorted(asked - {c.device for c in others if c.is_bad})
    unit = _suspect_unit(device, own)
    if unit is not None:
        return unit
    why = f"{', '.join(clean)} gave the right bits for the same input"
    is_host = device.startswith("cpu:")
    return Suspect(
        scope=Scope.HOST_CPU if is_host else Scope.DEVICE,
        name=device,
        because="; ".join(filter(None, (why, _dependence(own)))),
    )


def _nobody(own: list[Cell], others: list[Cell]) -> Suspect:
    """Why no device is named: nobody else was asked, all fail alike, or it may be luck."""
    bad = {c.device for c in others if c.is_bad}
    asked = {c.device for c in others}
    if asked and bad == asked:
        return Suspect(scope=Scope.SOFTWARE_OR_PLATFORM, because=ALL_ALIKE)
    why = "no second device has run the same input"
    if asked:
        chance = luck(own, others)
        why = (
            f"it is no worse than {len(asked)} others, or so by luck in {chance:.0%} of such cases"
        )
    return Suspect(scope=Scope.UNKNOWN, because="; ".join(filter(None, (why, _dependence(own)))))


def _several_bad_devices(bad: set[str], clean: set[str]) -> Suspect:
    if not clean:
        return Suspect(scope=Scope.SOFTWARE_OR_PLATFORM, because=ALL_ALIKE)
    return Suspect(
        scope=Scope.UNKNOWN,
        because=f"{', '.join(sorted(bad))} differ and {', '.join(sorted(clean))} do not: "
        "judge each device alone",
    )


def _suspect_unit(device: str, own: Iterable[Cell]) -> Suspect | None:
    """The single bad unit of a device whose other units stayed clean."""
    cells = [c for c in own if c.unit]
    bad_units = {c.unit for c in cells if c.is_bad}
    clean = [c for c in cells if c.unit not in bad_units]
    if len(bad_units) != 1 or not clean:
        return None
    num_clean = len({c.unit for c in clean})
    if luck([c for c in cells if c.unit in bad_units], clean) > LUCK / (num_clean + 1):
        return None
    (unit,) = bad_units
    return Suspect(
        scope=Scope.UNIT,
        name=f"{device}/{unit}",
        because="the device's other units gave the right bits for the same input "
        f"({num_clean} of them)",
    )


def _dependence(own: Iterable[Cell]) -> str:
    """The conditions on which a failure depends, in words; empty if none was shown."""
    cells = list(own)
    pairs = [(b, c) for b in cells if b.is_bad for c in cells if not c.is_bad and c.unit == b.unit]
    # A condition matters where changing it alone turned a failure into a clean run.
    matters = {
        name
        for bad, clean in pairs
        if luck([bad], [clean]) <= LUCK
        for name in _changed(bad, clean)
        if len(_changed(bad, clean)) == 1
    }
    return f"depends on {', '.join(sorted(matters))}" if matters else ""


def _changed(one: Cell, other: Cell) -> set[str]:
    """The names of the conditions that differ."""
    return {name for name, _ in set(one.conditions) ^ set(other.conditions)}


def _suspect_link(observations: Iterable[Observation]) -> Suspect:
    """Sender, receiver or directed link, from observations with a sender and a receiver."""
    edges: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for seen in observations:
        tally = edges[_party(seen, Role.SENDER).device, _party(seen, Role.RECEIVER).device]
        tally[0] += int(seen.value) if seen.is_miscompare else 0
        tally[1] += seen.num_comparisons
    bad = {edge for edge, (wrong, _) in edges.items() if wrong}
    if bad == edges.keys():
        scope = Scope.SOFTWARE_OR_PLATFORM if len(bad) > 1 else Scope.UNKNOWN
        why = ALL_ALIKE if len(bad) > 1 else "no other transfer has been tried"
        return Suspect(scope=scope, because=why)
    if _edge_luck(edges, bad) > LUCK / len(edges):
        return Suspect(scope=Scope.UNKNOWN, because="the other transfers may be clean by luck")
    if len(bad) == 1:
        ((sender, receiver),) = bad
        return Suspect(
            scope=Scope.LINK,
            name=f"{sender}->{receiver}",
            because=f"{len(edges) - 1} other directed transfers were exact: path or platform",
        )
    for end, role in ((0, "sent"), (1, "received")):
        devices = {e[end] for e in bad}
        if len(devices) == 1 and {e for e in edges if e[end] in devices} == bad:
            (device,) = devices
            return Suspect(
                scope=Scope.DEVICE,
                name=device,
                because=f"everything that it {role} was damaged, all other transfers were exact",
            )
    return Suspect(scope=Scope.UNKNOWN, because=f"{len(bad)} directed transfers differ")


def _edge_luck(edges: Mapping[tuple[str, str], list[int]], bad: set[tuple[str, str]]) -> float:
    wrong, total = (sum(edges[e][i] for e in bad) for i in (0, 1))
    return chance_of_share(wrong, total, 0, sum(edges[e][1] for e in edges if e not in bad))


def _cells(observations: Iterable[Observation]) -> list[Cell]:
    counts: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[int]] = defaultdict(
        lambda: [0, 0]
    )
    for seen in observations:
        conditions = tuple(sorted(seen.conditions.items()))
        for party in seen.parties:
            tally = counts[party.device, party.unit, conditions]
            tally[0] += int(seen.value) if seen.is_miscompare else 0
            tally[1] += seen.num_comparisons
    return [Cell(*key, wrong, total) for key, (wrong, total) in counts.items()]


def _is_input(seen: Observation) -> bool:
    return all(p.role is Role.INPUT for p in seen.parties)


def _is_directed(seen: Observation) -> bool:
    return {Role.SENDER, Role.RECEIVER} <= {p.role for p in seen.parties}


def _party(seen: Observation, role: Role) -> Party:
    return next(p for p in seen.parties if p.role is role)
