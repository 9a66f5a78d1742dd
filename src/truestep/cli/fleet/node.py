# SPDX-License-Identifier: Apache-2.0
"""`truestep fleet node`: where a node is in its life, why, and what is in it."""

from __future__ import annotations

import json
from pathlib import Path

import click

from truestep.cli.fleet.opening import fleet_option, open_history
from truestep.cli.output import console
from truestep.record import RecordKind
from truestep.report.fleet_tables import history_table, placements_table, when
from truestep.report.text import shown
from truestep.store.schema import to_plain

LAST = 15


@click.command("node", epilog="Example: truestep fleet node n7")
@fleet_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@click.argument("name", metavar="NODE")
def command(folder: Path, name: str, as_json: bool) -> None:
    """Where NODE is in its life, since when and why; its devices, runs and latest steps.

    NODE is a name, an alias, a serial, or the beginning of a name up to a dot.
    """
    kinds = {RecordKind.TRANSITION, RecordKind.ACTION, RecordKind.WATCH}
    with open_history(folder) as history:
        entry = history.find(name)
        devices = history.devices_of(entry.key)
        runs = history.runs_of(entry.key)
        steps = history.records(entry.key, kinds=kinds)
    if as_json:
        found = {
            "node": to_plain(entry),
            "devices": [to_plain(p) for p in devices],
            "runs": [to_plain(run) for run in runs],
            "steps": [to_plain(record) for record in steps],
        }
        click.echo(json.dumps({"schema_version": 1, **found}, allow_nan=False))
        return
    out = console()
    identity = shown(entry.identity) or "no serial known"
    out.print(f"{shown(entry.name)} ({identity}): {entry.state} since {when(entry.since_s)} UTC")
    place = [f"{k} {shown(v)}" for k, v in (("rack", entry.rack), ("power", entry.power)) if v]
    passed = f"last pass {when(entry.last_pass_s)}, last screened {when(entry.last_screened_s)}"
    out.print(", ".join([*place, passed, f"{len(runs)} runs"]))
    if devices:
        out.print(placements_table(devices, title="Devices"))
    if steps:
        rows = [(entry.name, record) for record in steps[-LAST:]]
        out.print(history_table(rows, title=f"The last {len(rows)} steps"))
