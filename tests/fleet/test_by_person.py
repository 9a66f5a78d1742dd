# SPDX-License-Identifier: Apache-2.0
"""What a person decides of a node."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.fake_scheduler import FakeScheduler
from truestep.errors import ConfigError
from truestep.fleet.by_person import Person
from truestep.fleet.carry_out import Hands
from truestep.fleet.life_cycle import state_of, step
from truestep.reason import Reason
from truestep.store.history import Entry, History
from truestep.transition import NodeState
from truestep.verdict import Outcome

S = NodeState
PATH = (S.SCREENING, S.AVAILABLE, S.IN_USE, S.SUSPECT, S.DRAINING, S.QUARANTINED)
FURTHER = (S.IN_REPAIR, S.PROBATION)


class World:
    def __init__(self, folder: Path) -> None:
        self.history = History.create(f"sqlite:///{folder}/fleet.db", is_simulation=False)
        self.scheduler = FakeScheduler.of(["n0"])
        self.published: list[tuple[str, Outcome, str]] = []
        hands = Hands(
            history=self.history,
            scheduler=self.scheduler,
            publish=lambda *told: self.published.append(told),
            tell=lambda _: None,
        )
        self.person = Person(hands=hands, now_s=100.0)
        self.history.enrol("n0", now_s=1.0)

    def bring_to(self, state: NodeState) -> Entry:
        path = (*PATH, *FURTHER) if state in FURTHER else PATH
        if state is S.HELD_FOR_STUDY:
            path = (*PATH, state)
        for after in path[: path.index(state) + 1]:
            record = step(self.node, after, Reason.SCREENING_DUE, now_s=2.0)
            self.history.append(1, record)
        return self.node

    @property
    def node(self) -> Entry:
        return self.history.entry(1)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("state", [S.AVAILABLE, S.IN_USE, S.SUSPECT])
def test_a_node_is_taken_out_by_hand(world: World, state: NodeState) -> None:
    world.person.hold(world.bring_to(state))
    assert world.node.state is S.DRAINING
    assert world.scheduler.infos["n0"].reason == "truestep:person_decided"


def test_a_quarantined_node_is_held_and_given_back(world: World) -> None:
    world.person.hold(world.bring_to(S.QUARANTINED))
    assert world.node.state is S.HELD_FOR_STUDY
    world.person.release(world.node, is_forced=False)
    assert world.node.state is S.QUARANTINED


@pytest.mark.parametrize("state", [S.QUARANTINED, S.HELD_FOR_STUDY, S.IN_REPAIR])
def test_a_repaired_node_comes_on_probation(world: World, state: NodeState) -> None:
    world.person.repaired(world.bring_to(state))
    assert world.node.state is S.PROBATION
    # Its prolog reads a fail until then; the epilog of its screening fetches this.
    assert world.published == [("n0", Outcome.UNKNOWN, "repair_done")]


@pytest.mark.parametrize("state", [S.QUARANTINED, S.IN_REPAIR, S.PROBATION, S.SUSPECT])
def test_only_force_gives_a_node_to_jobs_without_a_screening(
    world: World, state: NodeState
) -> None:
    world.scheduler.drain("n0", "truestep:x")
    entry = world.bring_to(state)
    with pytest.raises(ConfigError, match="--force"):
        world.person.release(entry, is_forced=False)
    assert world.node == entry
    world.person.release(entry, is_forced=True)
    assert world.node.state is S.AVAILABLE
    assert world.scheduler.infos["n0"].is_idle
    assert state_of(world.history.records(1)) is S.AVAILABLE


def test_what_cannot_be_done_is_said_and_changes_nothing(world: World) -> None:
    for act in (world.person.hold, world.person.repaired):
        with pytest.raises(ConfigError, match="must be"):
            act(world.node)
    assert world.history.records(1) == ()
    assert world.scheduler.log == []
