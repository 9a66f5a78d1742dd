# SPDX-License-Identifier: Apache-2.0
"""`truestep fleet status`: how many nodes are where, and what needs a person."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from truestep.cli.fleet.opening import fleet_option, open_history
from truestep.cli.output import console
from truestep.fleet.handoff import precision
from truestep.fleet.incident import VENDOR
from truestep.fleet.life_cycle import OUT_OF_THE_POOL
from truestep.report.text import shown
from truestep.store.history import Entry, History
from truestep.store.schema import to_plain
from truestep.transition import NodeState

WORTH_NAMING = (OUT_OF_THE_POOL - {NodeState.RETIRED}) | {NodeState.SUSPECT}


@click.command("status", epilog="Example: truestep fleet status --json")
@fleet_option
@click.option("--all", "is_all", is_flag=True, help="Name every node.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
def command(folder: Path, is_all: bool, as_json: bool) -> None:
    """Nodes by state, those that are out of the pool or suspected, open runs, and alerts."""
    with open_history(folder) as history:
        found = document_of(history, time.time(), is_all=is_all)
    if as_json:
        click.echo(json.dumps(found, allow_nan=False))
        return
    out = console()
    kind = "simulation" if found["is_simulation"] else "fleet"
    out.print(f"{kind} of {found['num_nodes']} nodes, {found['num_open_runs']} runs open")
    for state, count in found["states"].items():
        out.print(f"  {count:6}  {state}")
    for node in found["named"]:
        hours = node["for_s"] / 3600
        findings = f", {node['num_open']} findings open" if node["num_open"] else ""
        out.print(f"{shown(node['name'])}: {node['state']} for {hours:.1f} h{findings}")
    if found["num_never_passed"]:
        out.print(f"{found['num_never_passed']} nodes never passed a screening of a campaign")
    if found["longest_without_pass_s"] is not None:
        days = found["longest_without_pass_s"] / 86_400
        out.print(f"the longest since a pass is {days:.1f} days")
    judged = found["handed_off"]
    if judged["num_judged"]:
        out.print(
            f"vendors confirmed {judged['num_confirmed']} of {judged['num_judged']} hand-offs: "
            f"precision {judged['low']:.0%} to {judged['high']:.0%} (95 %)"
        )
    for entry in found["refused"]:
        name = f"{shown(entry['id'])}: " if entry["id"] else ""
        out.print(f"kept aside: {name}{shown(entry['why'])}")
    if found["refused"]:
        out.print("those are the newest; they are tried again when their folder is ingested again")
    if not found["num_nodes"]:
        out.print("no node is known yet: run `truestep fleet map` or `truestep fleet ingest`")


def document_of(history: History, now_s: float, *, is_all: bool = False) -> dict[str, Any]:
    """The state of a fleet as plain data."""
    summary = history.summary()
    counts = {s.value: summary.counts[s] for s in NodeState if s in summary.counts}
    named = history.entries(states=None if is_all else WORTH_NAMING, with_open=True)
    oldest_s = summary.oldest_pass_s
    return {
        "schema_version": 1,
        "is_simulation": history.is_simulation,
        "num_nodes": sum(counts.values()),
        "states": counts,
        "num_out": sum(e.state in WORTH_NAMING - {NodeState.SUSPECT} for e in named),
        "named": [_named(e, now_s) for e in named],
        "num_never_passed": summary.num_never_passed,
        "longest_without_pass_s": None if oldest_s is None else max(0.0, now_s - oldest_s),
        "num_open_runs": len(history.open_runs()),
        "handed_off": to_plain(precision(history.records_about(VENDOR))),
        "refused": [{"id": r.id, "why": r.why} for r in history.refused(limit=5)],
    }


def _named(entry: Entry, now_s: float) -> dict[str, Any]:
    return {
        "name": entry.name,
        "identity": entry.identity,
        "state": entry.state.value,
        "num_open": entry.num_open,
        "for_s": max(0.0, now_s - entry.since_s),
    }
