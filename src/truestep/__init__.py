# SPDX-License-Identifier: Apache-2.0
"""Truestep finds silent data corruption on the machines that train large language models.

This package exports its nouns: plain data that the stages pass to one another. Importing it loads
neither numpy nor torch nor jax.
"""

from truestep.action import Action, ActionKind, StepDecision
from truestep.certificate import Certificate, Repeatability
from truestep.context import Context, Sample
from truestep.device import Device, Node
from truestep.environment import Environment
from truestep.fault import Fault, FaultKind
from truestep.observation import Miscompare, Observation, Party
from truestep.reason import Reason
from truestep.record import Artifact, Record, RecordKind
from truestep.reference import Reference, ReferenceKind
from truestep.transition import NodeState, Transition
from truestep.verdict import Outcome, Power, Status, Suspect, Verdict

__version__ = "0.1.0"

__all__ = [
    "Action",
    "ActionKind",
    "Artifact",
    "Certificate",
    "Context",
    "Device",
    "Environment",
    "Fault",
    "FaultKind",
    "Miscompare",
    "Node",
    "NodeState",
    "Observation",
    "Outcome",
    "Party",
    "Power",
    "Reason",
    "Record",
    "RecordKind",
    "Reference",
    "ReferenceKind",
    "Repeatability",
    "Sample",
    "Status",
    "StepDecision",
    "Suspect",
    "Transition",
    "Verdict",
]
