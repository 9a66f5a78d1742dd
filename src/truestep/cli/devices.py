# SPDX-License-Identifier: Apache-2.0
"""`truestep devices`: what may be screened here."""

from __future__ import annotations

import sys

import click
from rich.table import Table

from truestep.cli import options, output
from truestep.cli.exit_codes import NOT_JUDGED
from truestep.record import SCHEMA_VERSION
from truestep.report.tables import WIDTH
from truestep.report.text import shown
from truestep.screening.tasks import Found
from truestep.store.schema import dumps, to_plain


@click.command("devices", epilog="Example: truestep devices --json")
@options.backend
@options.as_json
@click.option("--simulate-devices", type=click.IntRange(0, 1024), default=0, metavar="N")
def command(backend: str, as_json: bool, simulate_devices: int) -> None:
    """List the devices that this process may use, with their identity.

    Exit status 2 if there are none.
    """
    from truestep.backends.open import resolve
    from truestep.device import Device
    from truestep.screening.launch import start_server
    from truestep.screening.probe import probe
    from truestep.screening.tasks import Setup, Target

    name = resolve(backend)
    nowhere = Target(device=Device(id="", kind="cpu", model=""))
    setup = Setup(backend=name, target=nowhere, num_simulated=simulate_devices)
    with output.console(is_error=True).status("asking the drivers for their devices"):
        found = probe(start_server(name), setup, ())
    if as_json:
        plain = [to_plain(f.device) for f in found]
        click.echo(dumps({"schema_version": SCHEMA_VERSION, "devices": plain}))
    else:
        output.console().print(_table(found))
    sys.exit(0 if found else NOT_JUDGED)


def _table(found: tuple[Found, ...]) -> Table:
    table = Table(width=WIDTH)
    for name in ("id", "model", "serial", "units", "free memory", "notes"):
        table.add_column(name, overflow="fold")
    for one in found:
        device = one.device
        notes = [
            *(["weak identity"] if device.is_weak else []),
            *(["partial"] if device.is_partial else []),
            *(["simulated"] if device.is_simulated else []),
            *([f"in use by {len(one.busy_with)} processes"] if one.busy_with else []),
        ]
        table.add_row(
            shown(device.id),
            shown(device.model),
            shown(device.serial or "not reported"),
            str(len(device.units) or "-"),
            f"{one.free_memory_bytes / 2**30:.1f} GiB",
            ", ".join(notes),
        )
    return table
