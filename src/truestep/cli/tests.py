# SPDX-License-Identifier: Apache-2.0
"""`truestep tests`: what can be run, and what each test is worth."""

from __future__ import annotations

import click
from rich.table import Table

from truestep.cli import options, output
from truestep.record import SCHEMA_VERSION
from truestep.report.tables import WIDTH
from truestep.report.text import shown
from truestep.screening import registry
from truestep.screening.spec import Level, ScreeningTest
from truestep.store.schema import dumps


@click.command("tests", epilog="Example: truestep tests matmul")
@click.argument("names", nargs=-1, type=options.NameOfTest())
@options.as_json
def command(names: tuple[str, ...], as_json: bool) -> None:
    """List the screening tests: id, level, silicon stressed, reference, cost.

    NAMES are ids or groups; a single test is shown in full.
    """
    chosen = registry.choose(names, level=max(Level))
    if as_json:
        click.echo(dumps({"schema_version": SCHEMA_VERSION, "tests": list(map(plain, chosen))}))
    elif len(chosen) == 1:
        for key, value in plain(chosen[0]).items():
            text = ", ".join(value) if isinstance(value, list) else value
            click.echo(f"{key:<14} {text}")
    else:
        output.console().print(_table(chosen))


def plain(test: ScreeningTest) -> dict[str, object]:
    """What a test declares, as plain data."""
    return {
        "id": test.id,
        "level": int(test.level),
        "groups": list(test.groups),
        "stresses": test.stresses,
        "reference": test.reference.value,
        "known_because": test.known_because,
        "blind_to": test.blind_to,
        "needs": [f"{n.op} in {n.precision}" for n in test.needs],
        "cost_share": test.share,
        "min_rounds": test.min_rounds,
    }


def _table(tests: tuple[ScreeningTest, ...]) -> Table:
    table = Table(width=WIDTH)
    table.add_column("id", no_wrap=True)
    table.add_column("level", justify="right")
    table.add_column("silicon stressed", overflow="fold", ratio=1)
    table.add_column("reference")
    table.add_column("cost", justify="right")
    for test in tests:
        table.add_row(
            test.id,
            str(int(test.level)),
            shown(test.stresses),
            test.reference.value,
            f"{test.share:g}",
        )
    return table
