# SPDX-License-Identifier: Apache-2.0
"""`truestep fleet ingest`: fold folders of results into the history."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from truestep.cli.exit_codes import NOT_JUDGED
from truestep.cli.fleet.opening import fleet_option, open_history
from truestep.cli.output import console
from truestep.report.printable import printable
from truestep.report.text import shown
from truestep.store.history.ingest import ingest_folder

MOST_SHOWN = 20


@click.command("ingest", epilog="Example: truestep fleet ingest truestep-results")
@fleet_option
@click.argument(
    "results",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.pass_context
def command(ctx: click.Context, folder: Path, results: tuple[Path, ...]) -> None:
    """Take in the journals, result documents and job marks below folders, each record once.

    It may be repeated at any time. What may not come in is kept aside, with the reason. Records
    of runs that the controller did not issue cause a retest at most.

    Exit status 0 if all came in or was known, 2 if something was kept aside.
    """
    problems: Counter[str] = Counter()
    with open_history(folder) as history:
        for each in results:
            done = ingest_folder(history, each)
            folded = done.folded
            problems.update(shown(r.why) for r in folded.refused)
            problems.update(map(shown, done.problems))
            click.echo(
                f"{printable(str(each))}: {folded.num_new} new, {folded.num_known} known, "
                f"{len(folded.refused) + len(done.problems)} kept aside, {done.num_files} files"
            )
            if not done.num_files:
                click.echo(
                    f"{printable(str(each))} holds no journal, no result and no marks", err=True
                )
    errors = console(is_error=True)
    for line, count in problems.most_common(MOST_SHOWN):
        errors.print(f"  {line}" + (f" ({count} times)" if count > 1 else ""))
    if len(problems) > MOST_SHOWN:
        errors.print(f"  and {len(problems) - MOST_SHOWN} more")
    if problems:
        ctx.exit(NOT_JUDGED)
