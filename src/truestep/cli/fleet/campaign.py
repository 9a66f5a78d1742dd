# SPDX-License-Identifier: Apache-2.0
"""`truestep fleet campaign`: screen nodes through Slurm, and act on what is found."""

from __future__ import annotations

import dataclasses
import json
import shlex
import time
import typing
from pathlib import Path
from typing import Any

import click

from truestep.cli.fleet.opening import fleet_option, open_history
from truestep.cli.fleet.scheduler import hands_of, scheduler_options
from truestep.cli.output import console
from truestep.errors import ConfigError
from truestep.fleet.campaign import Controller, Pass
from truestep.fleet.job import MARKS, JobMaker
from truestep.fleet.plan import Options
from truestep.fleet.policy import Occasion, Rules
from truestep.fleet.runs import Runs
from truestep.report.text import shown
from truestep.store.history import History


@click.command(
    "campaign",
    epilog="Example: truestep fleet campaign --occasion reclaim --apply -- --minutes 10",
)
@fleet_option
@click.option(
    "--occasion", required=True, type=click.Choice([o.value for o in Occasion]), help="Why."
)
@click.option("--apply", is_flag=True, help="Do it. Without this it is only said.")
@click.option("--id", "name", help="Name of the campaign; the occasion by default.")
@click.option("--node", "nodes", multiple=True, help="Only this node; may be repeated.")
@click.option("--cap", default=64, show_default=True, type=click.IntRange(1), help="Runs at once.")
@click.option("--cap-per-domain", type=click.IntRange(1), help="Runs at once in a rack.")
@click.option("--budget-hours", type=click.FloatRange(0), help="Node-hours to book at most.")
@click.option("--limit-s", type=click.FloatRange(1), help="Longest a job may run.")
@click.option("--rule", "rules", multiple=True, metavar="NAME=VALUE", help="Change a rule.")
@scheduler_options
@click.option("--command", default="truestep", show_default=True, help="Truestep on the nodes.")
@click.option("--results", type=click.Path(path_type=Path), help="Folder that the nodes share.")
@click.option("--marks", default=MARKS, show_default=True, help="The epilog's file; %n: the node.")
@click.option("--every-s", default=10.0, type=click.FloatRange(0.1), help="Pause between passes.")
@click.option("--passes", default=0, type=click.IntRange(0), help="End after so many; 0 when done.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document for each pass.")
@click.argument("screen_arguments", nargs=-1)
def command(folder: Path, apply: bool, every_s: float, passes: int, **options: Any) -> None:
    """Screen the nodes that are due, in jobs of their own, and act on what is found.

    Without --apply it says what it would do. It may be ended and started again at any time. What
    stands after `--` is given to `truestep screen`.
    """
    as_json = options["as_json"]
    with open_history(folder) as history:
        controller = _controller(history, folder, options)
        if not apply:
            _say(controller.look(now_s=time.time()), as_json=as_json, is_dry_run=True)
            return
        with history.controller():
            number = 0
            while True:
                number += 1
                done = controller.one_pass(now_s=time.time())
                _say(done, as_json=as_json, is_dry_run=False)
                if done.is_over or number == passes:
                    return
                time.sleep(every_s)


def _controller(history: History, folder: Path, given: dict[str, Any]) -> Controller:
    budget = given["budget_hours"]
    options = Options(
        id=given["name"] or given["occasion"],
        occasion=Occasion(given["occasion"]),
        only=frozenset(history.find(name).name for name in given["nodes"]),
        cap=given["cap"],
        cap_per_domain=given["cap_per_domain"],
        budget_s=None if budget is None else budget * 3600,
        limit_s=given["limit_s"],
        rules=_rules(given["rules"]),
    )
    jobs = JobMaker(
        results=(given["results"] or folder / "results").absolute(),
        command=tuple(shlex.split(given["command"])),
        arguments=given["screen_arguments"],
        marks=given["marks"],
    )
    hands = hands_of(history, folder, given)
    runs = Runs(
        history=history,
        scheduler=hands.scheduler,
        jobs=jobs,
        options=options,
        clock=time.time,
    )
    return Controller(
        history=history, scheduler=hands.scheduler, runs=runs, hands=hands, options=options
    )


def _rules(texts: tuple[str, ...]) -> Rules:
    """The rules, with changes such as `share_out=0.25`.

    Raises:
        ConfigError: There is no such rule, or it cannot have this value.
    """
    kinds = typing.get_type_hints(Rules)
    changes: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            changes[name] = kinds[name](value)
        except (KeyError, ValueError):
            names = ", ".join(field.name for field in dataclasses.fields(Rules))
            raise ConfigError(
                f"a rule must be NAME=NUMBER with one of {names}, got {text!a:.80}."
            ) from None
    try:
        return Rules(**changes)
    except ValueError as error:
        raise ConfigError(f"rules must hold together, got: {error}") from error


def _say(done: Pass, *, as_json: bool, is_dry_run: bool) -> None:
    plan = done.plan
    found = {
        "schema_version": 1,
        "is_dry_run": is_dry_run,
        "screenings": [s.candidate.entry.name for s in plan.screenings],
        "actions": [_action(c.entry.name, a) for c, a in plan.actions],
        "held": [_action(c.entry.name, a) for c, a in plan.held],
        "waiting": [{"node": name, "why": why} for name, why in plan.waiting],
        "num_closed": done.num_closed,
        "num_issued": done.num_issued,
        "num_open": done.num_open,
        "alerts": list(done.alerts),
    }
    if as_json:
        click.echo(json.dumps(found, allow_nan=False))
        return
    out, would = console(), "would screen" if is_dry_run else "screens"
    out.print(
        f"{would} {len(plan.screenings)}, {done.num_open} runs open, {done.num_closed} ended, "
        f"{len(plan.actions)} actions, {len(plan.held)} held, {len(plan.waiting)} nodes wait"
    )
    for candidate, action in (*plan.actions, *plan.held):
        out.print(f"  {shown(candidate.entry.name)}: {action.kind} ({action.reason})")
    for name, why in plan.waiting:
        out.print(f"  {shown(name)} waits: {shown(why)}")
    for alert in done.alerts:
        console(is_error=True).print(f"  {shown(alert)}")


def _action(node: str, action: Any) -> dict[str, str]:
    return {"node": node, "kind": action.kind.value, "reason": action.reason}
