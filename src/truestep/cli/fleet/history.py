# SPDX-License-Identifier: Apache-2.0
"""`truestep fleet history`: all that was recorded of a node or a device."""

from __future__ import annotations

from pathlib import Path

import click

from truestep.cli.fleet.opening import fleet_option, open_history
from truestep.cli.output import console
from truestep.record import Record
from truestep.report.fleet_tables import history_table
from truestep.report.text import shown
from truestep.store.history import History
from truestep.store.schema import dumps


@click.command("history", epilog="Example: truestep fleet history GPU-5f3a --last 50")
@fleet_option
@click.option("--last", default=100, show_default=True, type=click.IntRange(1), help="So many.")
@click.option("--json", "as_json", is_flag=True, help="Whole records as JSON Lines.")
@click.argument("name", metavar="NODE|SERIAL")
def command(folder: Path, name: str, last: int, as_json: bool) -> None:
    """The records of a node, or of a device through all nodes that it was in, oldest first."""
    with open_history(folder) as history:
        records = _records(history, name)[-last:]
    if as_json:
        for _, record in records:
            click.echo(dumps(record))
        return
    console().print(history_table(records, title=f"History of {shown(name)}"))


def _records(history: History, name: str) -> list[tuple[str, Record]]:
    names = {entry.key: entry.name for entry in history.entries()}
    of_device = _of_device(history, name)
    if of_device:
        return [(names[key], record) for key, record in of_device]
    entry = history.find(name)
    return [(entry.name, record) for record in history.records(entry.key)]


def _of_device(history: History, serial: str) -> tuple[tuple[int, Record], ...]:
    placements = history.placements(serial)
    return history.records_of_device(placements[0].serial) if placements else ()
