# SPDX-License-Identifier: Apache-2.0
"""`truestep fleet init`: make the history of a fleet, bring it up to date, or derive it anew."""

from __future__ import annotations

from pathlib import Path

import click

from truestep.cli.fleet.opening import fleet_option, make_fleet, open_history, url_of
from truestep.report.printable import printable
from truestep.store.history import History


@click.command(
    "init",
    epilog="Example: truestep fleet init --db postgresql://truestep@db.cluster/fleet",
)
@fleet_option
@click.option("--db", metavar="URL", help="PostgreSQL or SQLite; a file in the folder by default.")
@click.option("--simulation", is_flag=True, help="A rehearsal: simulated records are taken in.")
@click.option("--upgrade", is_flag=True, help="Bring a history to this version of truestep.")
@click.option("--rebuild", is_flag=True, help="Make anew all that follows from the records.")
def command(folder: Path, db: str | None, simulation: bool, upgrade: bool, rebuild: bool) -> None:
    """Make the history of a fleet.

    A password belongs into ~/.pgpass. One in the URL is kept in the folder, for its owner only.
    """
    if upgrade + rebuild > 1 or ((upgrade or rebuild) and (db or simulation)):
        raise click.UsageError("--upgrade and --rebuild each stand alone.")
    if upgrade:
        History.upgrade(url_of(folder))
        click.echo("the history is of this version")
    elif rebuild:
        with open_history(folder) as history, history.controller():
            history.rebuild()
        click.echo("what follows from the records was made anew")
    else:
        make_fleet(folder, db, is_simulation=simulation)
        kind = "a simulation" if simulation else "a fleet"
        click.echo(f"made {kind} in {printable(str(folder))}")
