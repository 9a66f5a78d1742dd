# SPDX-License-Identifier: Apache-2.0
"""`truestep fleet release`: give nodes back, after a repair or by force."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from truestep.cli.exit_codes import NOT_JUDGED
from truestep.cli.fleet.opening import fleet_option, note_of, open_history
from truestep.cli.fleet.scheduler import hands_of, scheduler_options
from truestep.errors import ConfigError
from truestep.fleet.by_person import Person


@click.command("release", epilog="Example: truestep fleet release --repaired n7 n9")
@fleet_option
@scheduler_options
@click.option("--repaired", is_flag=True, help="They were repaired: put them on probation.")
@click.option("--force", is_flag=True, help="Give them to jobs as they are, without a screening.")
@click.option("--why", default="", help="Kept as a note.")
@click.argument("nodes", nargs=-1, required=True)
def command(
    folder: Path,
    nodes: tuple[str, ...],
    repaired: bool,
    force: bool,
    why: str,
    **given: Any,
) -> None:
    """Give NODES back: those held for study go into quarantine, repaired ones on probation.

    A node that was taken out takes jobs again only after a screening, or with --force. Those that
    cannot be released are named and left as they are; the others are released.

    Exit status 0 if all were released, 2 if some were left.
    """
    if repaired and force:
        raise click.UsageError("--repaired and --force each stand alone.")
    is_left = False
    with open_history(folder) as history, history.controller():
        person = Person(hands=hands_of(history, folder, given), now_s=time.time())
        for entry in [history.find(name) for name in nodes]:
            try:
                if repaired:
                    done = person.repaired(entry)
                else:
                    done = person.release(entry, is_forced=force)
            except ConfigError as error:
                is_left = True
                click.echo(f"left: {error}", err=True)
                continue
            if why:
                history.append(entry.key, note_of(history, entry, why))
            click.echo(f"{entry.name}: {done}")
        for alert in person.hands.alerts:
            click.echo(alert, err=True)
    if is_left:
        click.get_current_context().exit(NOT_JUDGED)
