# SPDX-License-Identifier: Apache-2.0
"""`truestep fleet map`: say which names are one node, its serial, rack and power domain."""

from __future__ import annotations

import time
from pathlib import Path

import click

from truestep.cli.fleet.opening import fleet_option, open_history
from truestep.store.history import NameMap


@click.command("map", epilog="Example: truestep fleet map nodes.toml")
@fleet_option
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def command(folder: Path, file: Path) -> None:
    """Bind names, serials, racks and power domains to nodes.

    FILE is TOML with a table for each node: [nodes.n0], and in it some of serial = "...",
    aliases = ["n0.cluster", "pod-7"], rack = "...", power = "...". In a simulation the serial is
    the one that the node shall have.
    """
    names = NameMap.read(file)
    with open_history(folder) as history:
        replaced = history.map_nodes(names, now_s=time.time())
        known = {entry.name for entry in history.entries()}
    missing = known - {node.name for node in names.nodes} - set(replaced)
    click.echo(f"nodes mapped: {len(names.nodes)}; known and not in this file: {len(missing)}")
    for name in replaced:
        click.echo(f"another serial is another machine: the one before is now {name}")
