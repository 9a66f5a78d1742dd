# SPDX-License-Identifier: Apache-2.0
"""The immutable entry that is kept: `Record`, and the `Artifact` files beside it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum

from truestep.action import Action
from truestep.context import Context
from truestep.device import Device, Node
from truestep.environment import Environment
from truestep.observation import Observation
from truestep.transition import Transition
from truestep.verdict import Verdict

SCHEMA_VERSION = 1


class RecordKind(StrEnum):
    """What a record tells of."""

    SCREENING = "screening"
    STUDY = "study"
    WATCH = "watch"
    ACTION = "action"
    TRANSITION = "transition"
    WITHDRAWAL = "withdrawal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file beside a record.

    Attributes:
        name: Path below the results folder.
        sha256: Of its bytes, as 64 hexadecimal digits.
        size_bytes: Its length.
    """

    name: str
    sha256: str
    size_bytes: int

    @classmethod
    def of(cls, name: str, data: bytes) -> Artifact:
        """The file of that name with these bytes."""
        return cls(name=name, sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One entry. It is only appended; a later record may withdraw it, and the trail stays.

    Attributes:
        id: Unique, and bound to the content by the journal's checksum.
        kind: What it tells of.
        run_id: The run it belongs to.
        time_s: Seconds since the epoch, for people; order is by the journal.
        subject: Test id, action or state that it is about.
        node, device: Who.
        environment, context: Under what.
        observations: What was seen.
        verdict: What it means.
        action: What was done to the node, or would be; of an action record only.
        transition: Which arrow the node took; of a transition record only.
        replay: The command that repeats it.
        artifacts: Files beside it.
        withdraws: Id of the record that this one takes back.
        is_simulated: Came from an invented device or a planted fault.
    """

    id: str
    kind: RecordKind
    run_id: str
    time_s: float
    subject: str
    node: Node | None = None
    device: Device | None = None
    environment: Environment | None = None
    context: Context | None = None
    observations: tuple[Observation, ...] = ()
    verdict: Verdict | None = None
    action: Action | None = None
    transition: Transition | None = None
    replay: str = ""
    artifacts: tuple[Artifact, ...] = ()
    withdraws: str = ""
    is_simulated: bool = False
    schema_version: int = field(default=SCHEMA_VERSION)

    def __post_init__(self) -> None:
        for kind, name in ((RecordKind.ACTION, "action"), (RecordKind.TRANSITION, "transition")):
            if (self.kind is kind) != (getattr(self, name) is not None):
                raise ValueError(
                    f"a record of kind {kind!s} must hold its {name}, and no other kind may, got "
                    f"kind={self.kind!s}, {name}={getattr(self, name)!r}."
                )
        if (self.kind is RecordKind.WITHDRAWAL) != bool(self.withdraws):
            raise ValueError(
                "a withdrawal must name the record it takes back, and no other kind may, got "
                f"kind={self.kind!s}, withdraws={self.withdraws!r}."
            )
