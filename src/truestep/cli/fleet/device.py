# SPDX-License-Identifier: Apache-2.0
"""`truestep fleet device`: in which nodes a device was, and what it showed there."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import click

from truestep.cli.fleet.opening import fleet_option, open_history
from truestep.cli.output import console
from truestep.errors import ConfigError
from truestep.report.fleet_tables import placements_table
from truestep.store.schema import to_plain


@click.command("device", epilog="Example: truestep fleet device GPU-5f3a")
@fleet_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@click.argument("serial")
def command(folder: Path, serial: str, as_json: bool) -> None:
    """Where the device with this SERIAL was, and how its tests ended."""
    with open_history(folder) as history:
        placements = history.placements(serial)
        records = history.records_of_device(placements[0].serial) if placements else ()
    if not placements:
        raise ConfigError(
            f"a device must be one that a record names, got {serial!a:.100}. `truestep fleet node` "
            "lists those of a node."
        )
    outcomes = Counter(r.verdict.outcome.value for _, r in records if r.verdict)
    if as_json:
        found = {"placements": [to_plain(p) for p in placements], "outcomes": dict(outcomes)}
        click.echo(json.dumps({"schema_version": 1, "serial": serial, **found}, allow_nan=False))
        return
    console().print(placements_table(placements, title="Where it was"))
    console().print("  ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())))
