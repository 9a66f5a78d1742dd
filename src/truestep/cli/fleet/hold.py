# SPDX-License-Identifier: Apache-2.0
"""`truestep fleet hold`: take nodes out by hand, or keep quarantined ones for study."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from truestep.cli.fleet.opening import fleet_option, note_of, open_history
from truestep.cli.fleet.scheduler import hands_of, scheduler_options
from truestep.fleet.by_person import Person


@click.command("hold", epilog='Example: truestep fleet hold n7 --why "odd loss in job 4711"')
@fleet_option
@scheduler_options
@click.option("--why", default="", help="Kept as a note.")
@click.argument("nodes", nargs=-1, required=True)
def command(folder: Path, nodes: tuple[str, ...], why: str, **given: Any) -> None:
    """Take NODES out of the pool; a quarantined one is held for study instead.

    What a person took out, no campaign repairs or returns.
    """
    with open_history(folder) as history, history.controller():
        person = Person(hands=hands_of(history, folder, given), now_s=time.time())
        for entry in [history.find(name) for name in nodes]:
            done = person.hold(entry)
            if why:
                history.append(entry.key, note_of(history, entry, why))
            click.echo(f"{entry.name}: {done}")
