# SPDX-License-Identifier: Apache-2.0
"""An error of one program is recorded; that of five users on one device asks for a screening."""

from __future__ import annotations

from truestep.action import ActionKind
from truestep.fleet.attached import error_records
from truestep.fleet.life_cycle import ARROWS
from truestep.fleet.policy import Dossier, Rules, decide
from truestep.reason import Reason
from truestep.record import Record
from truestep.store.history.entry import Entry
from truestep.transition import NodeState

LOG = b"""[10.0] NVRM: Xid (PCI:0000:3b:00): 31, pid=77, name=python, MMU Fault
[11.0] NVRM: Xid (PCI:0000:3b:00): 94, pid=77, name=python, Contained ECC error
"""
ENTRY = Entry(key=1, name="n1", identity="S1", state=NodeState.AVAILABLE, since_s=0.0)


def of_users(*users: str) -> list[Record]:
    records: list[Record] = []
    for number, user in enumerate(users):
        records += error_records(
            ENTRY, LOG, records, user=user, now_s=float(number), is_simulated=False
        )
    return records


def action(records: list[Record]) -> ActionKind:
    dossier = Dossier(node="S1", state=NodeState.AVAILABLE, records=tuple(records), last_pass_s=0.0)
    return decide(dossier, Rules(), now_s=10.0).kind


def test_one_users_errors_are_recorded_and_cause_nothing() -> None:
    records = of_users(*["1000"] * 6)
    assert {r.subject for r in records} == {
        "application_error/0000:3b:00/31",
        "application_error/0000:3b:00/94",
    }
    assert {r.verdict.reason for r in records if r.verdict} == {Reason.APPLICATION_ERROR}
    assert action(records) is ActionKind.NONE


def test_five_users_errors_ask_for_a_screening_and_never_for_more() -> None:
    assert action(of_users(*"1234")) is ActionKind.NONE
    records = of_users(*"12345")
    assert records[-1].verdict is not None
    assert records[-1].verdict.reason is Reason.APPLICATION_ERRORS_SPREAD
    assert action(records) is ActionKind.RETEST
    assert action(of_users(*(str(user) for user in range(100)))) is ActionKind.RETEST


def test_a_user_that_is_not_known_counts_for_nobody() -> None:
    assert action(of_users("1", "2", "3", "4", "", "")) is ActionKind.NONE


def test_every_state_but_the_last_has_a_way_out() -> None:
    for state in NodeState:
        assert bool(ARROWS[state]) == (state is not NodeState.RETIRED)
