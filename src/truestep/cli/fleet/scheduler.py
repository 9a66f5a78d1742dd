# SPDX-License-Identifier: Apache-2.0
"""The options that say how Slurm is reached, and the hands that then act on it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from truestep.fleet.carry_out import Hands, command_teller
from truestep.fleet.node_verdict import PRIVATE_KEY, publisher
from truestep.fleet.slurm import SlurmScheduler
from truestep.store.history import History

VERDICTS = "verdicts"
"""Folder in that of the fleet, in which the nodes' epilogs look."""

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--user", help="Whom the reservations are for; you by default."),
    click.option("--partition", default="", help="In which jobs run."),
    click.option("--prefix", default="", help="Put before Slurm's commands: `sudo -n -u slurm`."),
    click.option("--on-action", metavar="CMD", help="Gets each action as JSON on its input."),
)


def scheduler_options(function: F) -> F:
    """The options that every command has which acts on nodes."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def hands_of(history: History, folder: Path, given: dict[str, Any]) -> Hands:
    """What carries out actions, on the cluster that the options name."""
    scheduler = SlurmScheduler(
        partition=given["partition"],
        prefix=tuple(shlex.split(given["prefix"])),
        **({"user": given["user"]} if given["user"] else {}),
    )
    alerts: list[str] = []
    on_action = given["on_action"]
    return Hands(
        history=history,
        scheduler=scheduler,
        publish=publisher(folder / VERDICTS, folder / PRIVATE_KEY),
        tell=command_teller(on_action, alerts) if on_action else lambda _: None,
        alerts=alerts,
    )
