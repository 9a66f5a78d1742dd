# SPDX-License-Identifier: Apache-2.0
"""`truestep fleet note`: keep what a person knows of a node."""

from __future__ import annotations

from pathlib import Path

import click

from truestep.cli.fleet.opening import fleet_option, note_of, open_history


@click.command("note", epilog='Example: truestep fleet note n7 "fan replaced, ticket 4711"')
@fleet_option
@click.argument("node")
@click.argument("text")
def command(folder: Path, node: str, text: str) -> None:
    """Keep TEXT in the history of NODE. It counts for nothing, and is shown with the rest."""
    with open_history(folder) as history:
        entry = history.find(node)
        history.append(entry.key, note_of(history, entry, text))
    click.echo(f"noted for {entry.name}")
