# SPDX-License-Identifier: Apache-2.0
"""Which earlier incidents of a fleet are most like one, and in what."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from truestep.fleet.incident import Incident


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """An earlier incident.

    Attributes:
        incident: It.
        share: Features that both have, of all that either has, in (0, 1].
        features: Those that both have.
    """

    incident: Incident
    share: float
    features: tuple[str, ...]


def similar(
    incident: Incident, others: Iterable[Incident], *, most: int = 5
) -> tuple[Likeness, ...]:
    """The incidents with the most features in common, the most alike first.

    Features are models and firmware of the devices, tests, operations, bits, patterns, and what is
    suspected. Incidents without a common feature, and the incident itself, are left out.
    """
    own, found = features(incident), []
    for other in others:
        common = own & features(other)
        if other.id == incident.id or not common:
            continue
        share = len(common) / len(own | features(other))
        found.append(Likeness(incident=other, share=share, features=tuple(sorted(common))))
    found.sort(key=lambda likeness: (-likeness.share, -likeness.incident.opened_s))
    return tuple(found[:most])


def features(incident: Incident) -> frozenset[str]:
    """What an incident is compared by."""
    found = {f"device {device.rpartition(', ')[0]}" for device in incident.devices}
    found |= {f"suspect {suspect.split(' ')[0]}" for suspect in incident.suspects}
    for s in incident.symptoms:
        found |= {f"test {s.test}"}
        found |= {f"site {site}" for site in s.sites} | {f"bit {bit}" for bit in s.bits}
        found |= {f"spread {t}" for t in s.spreads} | {f"change {t}" for t in s.changes}
    return frozenset(found)
