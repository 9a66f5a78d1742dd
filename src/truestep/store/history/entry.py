# SPDX-License-Identifier: Apache-2.0
"""What a history tells: a node, a run that was issued, where a device was, what was refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from truestep.transition import NodeState


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A node as the history knows it.

    Attributes:
        key: Its number in this history, for life.
        name: What the scheduler calls it.
        identity: Its board serial, or the one that the map gives; empty until one is known.
        state: Where it is in its life.
        since_s: Since when, seconds since the epoch.
        rack, power: Where it stands and what feeds it; empty when the map does not say.
        last_pass_s: When it last passed an issued run as a whole; None if never.
        last_screened_s: Time of its last screening record; None if never.
        num_open: Findings since it became available or came on probation: screening records that
            are no pass, and what others say that asks for a screening.
    """

    key: int
    name: str
    identity: str
    state: NodeState
    since_s: float
    rack: str = ""
    power: str = ""
    last_pass_s: float | None = None
    last_screened_s: float | None = None
    num_open: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The nodes of a fleet, counted.

    Attributes:
        counts: Nodes by state; states without a node are left out.
        num_never_passed: Nodes that are not retired and never passed a run.
        oldest_pass_s: Time of the last pass that lies farthest back, retired nodes left out.
    """

    counts: Mapping[NodeState, int]
    num_never_passed: int
    oldest_pass_s: float | None


class RunStatus(StrEnum):
    """How far an issued run is. The first two are open."""

    ISSUED = "issued"
    SUBMITTED = "submitted"
    FOLDED = "folded"
    LOST = "lost"
    EXPIRED = "expired"


OPEN = (RunStatus.ISSUED, RunStatus.SUBMITTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run that the controller issued, once, for one node.

    Attributes:
        id: Random, drawn by the controller.
        key: The node's.
        name: What the scheduler called the node.
        campaign: Which campaign issued it.
        occasion: Why.
        level: Level of the screening.
        issued_s: When.
        start_by_s: When it is not started any more.
        limit_s: Longest it may run.
        status: How far it is.
        job_id: The scheduler's; empty until it was submitted.
        machine: What was behind the name when it was issued.
    """

    id: str
    key: int
    name: str
    campaign: str
    occasion: str
    level: int
    issued_s: float
    start_by_s: float
    limit_s: float
    status: RunStatus
    job_id: str = ""
    machine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """That a device was in a node, from its first record there to its last.

    Attributes:
        serial: The device's, or a weak name made of the node and the device's address.
        model, firmware: As last reported.
        key, name: The node's.
        from_s, to_s: Times of the records, seconds since the epoch.
    """

    serial: str
    model: str
    firmware: str
    key: int
    name: str
    from_s: float
    to_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Something that came from outside and does not count. It is kept, with the reason.

    Attributes:
        id: Of the record; of what is no record, where it stands.
        source: File it came from.
        why: What must hold, what was got, what to do.
    """

    id: str
    source: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """What became of records from outside.

    Attributes:
        num_new: Taken in.
        num_known: In the history already, with the same content.
        refused: Kept aside.
        keys: Nodes that the new ones are about.
        replaced: Keys before and after, where another machine has come under a name.
    """

    num_new: int = 0
    num_known: int = 0
    refused: tuple[Refused, ...] = ()
    keys: frozenset[int] = frozenset()
    replaced: tuple[tuple[int, int], ...] = ()

    def __add__(self, other: Folded) -> Folded:
        """Both together."""
        return Folded(
            num_new=self.num_new + other.num_new,
            num_known=self.num_known + other.num_known,
            refused=self.refused + other.refused,
            keys=self.keys | other.keys,
            replaced=self.replaced + other.replaced,
        )
