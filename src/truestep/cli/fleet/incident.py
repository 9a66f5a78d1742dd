# SPDX-License-Identifier: Apache-2.0
"""`truestep fleet incident`: what happened to a node, from the first suspicion to its return."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from truestep.cli.fleet.opening import fleet_option, open_history
from truestep.errors import ConfigError
from truestep.fleet.incident import Incident, incidents
from truestep.fleet.similar import similar
from truestep.report.markdown import incident_page
from truestep.store.history import History
from truestep.store.schema import to_plain
from truestep.transition import NodeState


@click.command("incident", epilog="Example: truestep fleet incident n7 --format markdown")
@fleet_option
@click.option(
    "--format",
    "form",
    default="markdown",
    show_default=True,
    type=click.Choice(["markdown", "json"]),
    help="For people or for programs.",
)
@click.argument("name", metavar="ID|NODE", required=False)
def command(folder: Path, form: str, name: str | None) -> None:
    """One incident by its id, or the newest of a node; without a name the list of all."""
    with open_history(folder) as history:
        known = all_incidents(history)
        if name is None:
            if not known:
                click.echo("no incident: no node was suspected", err=True)
            for each in known:
                state = "open" if each.closed_s is None else "closed"
                click.echo(f"{each.id}  {each.node!a}  {state}  {', '.join(each.suspects)!a}")
            return
        chosen = _chosen(history, known, name)
    document = document_of(chosen, known)
    if form == "json":
        click.echo(json.dumps(document, allow_nan=False))
    else:
        click.echo(incident_page(document), nl=False)


def all_incidents(history: History) -> list[Incident]:
    """The incidents of a fleet, oldest first."""
    found: list[Incident] = []
    for entry, heads, _ in history.recent():
        if any(r.transition and r.transition.after is NodeState.SUSPECT for r in heads):
            records = history.records(entry.key)
            found += incidents(entry, records, history.runs_of(entry.key))
    return sorted(found, key=lambda incident: (incident.opened_s, incident.id))


def document_of(chosen: Incident, known: list[Incident]) -> dict[str, Any]:
    """An incident as plain data, with the earlier ones most like it."""
    earlier = [i for i in known if i.opened_s <= chosen.opened_s]
    return {
        "schema_version": 1,
        "incident": to_plain(chosen),
        "time_to_detection_s": chosen.time_to_detection_s,
        "time_to_repair_s": chosen.time_to_repair_s,
        "similar": [
            {
                "id": x.incident.id,
                "node": x.incident.node,
                "share": x.share,
                "features": list(x.features),
            }
            for x in similar(chosen, earlier)
        ],
    }


def _chosen(history: History, known: list[Incident], name: str) -> Incident:
    by_id = [i for i in known if i.id == name]
    if by_id:
        return by_id[0]
    entry = history.find(name)
    own = [i for i in known if i.node == entry.name]
    if not own:
        raise ConfigError(f"a node must have an incident to show, got none for {entry.name!a}.")
    return own[-1]
