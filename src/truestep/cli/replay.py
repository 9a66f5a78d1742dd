# SPDX-License-Identifier: Apache-2.0
"""`truestep replay`: a saved failure once more."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.table import Table

from truestep.cli import options, output
from truestep.cli.exit_codes import DEFECT, NOT_JUDGED
from truestep.errors import RecordError
from truestep.record import SCHEMA_VERSION
from truestep.report.tables import WIDTH
from truestep.report.text import shown
from truestep.screening.failures import Repeatable, load_failure
from truestep.screening.replay import Conclusion, Replay
from truestep.screening.request import is_exercise
from truestep.store.schema import dumps

UNDECIDED = (
    Conclusion.MAY_BE_LUCK,
    Conclusion.ALL_ALIKE,
    Conclusion.NOT_REPRODUCED,
    Conclusion.OTHER_INPUTS,
    Conclusion.NOTHING_RAN,
)


@click.command(
    "replay",
    epilog="Example: truestep replay truestep-results/evidence/RUN-matmul_exact_fp32-3.json",
)
@click.argument("evidence", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--times", type=click.IntRange(1, 100_000), default=10, show_default=True)
@options.devices
@options.as_json
def command(evidence: Path, times: int, devices: tuple[str, ...], as_json: bool) -> None:
    """Repeat a saved failure on the devices that are here, and say whether it follows the device.

    EVIDENCE is a JSON file that `truestep screen` saved. Exit status 1 if the failure came back
    and a device can be blamed, else 2: a quiet repeat clears nobody, and a simulated one says
    nothing of hardware.
    """
    from truestep.backends.open import resolve
    from truestep.screening.launch import start_server
    from truestep.screening.replay import replay

    failure = load_failure(evidence)
    if is_exercise(failure.test_id):
        raise RecordError(
            f"{evidence} must come from a test of hardware, got {failure.test_id!r}, which only "
            "rehearses the runner. There is nothing to repeat."
        )
    context = start_server(resolve(failure.backend))
    with output.console(is_error=True).status(f"repeating {failure.test_id} {times} times"):
        done = replay(failure, times=times, devices=devices, context=context)
    if as_json:
        click.echo(dumps(_document(failure, done)))
    else:
        output.console().print(_table(failure, done))
        suspect = f" ({shown(done.suspect)})" if done.suspect else ""
        click.echo(f"Conclusion: {done.conclusion}{suspect}.")
        if done.is_simulated:
            click.echo("Simulated: it says nothing of hardware.")
    is_decided = not done.is_simulated and done.conclusion not in UNDECIDED
    sys.exit(DEFECT if is_decided else NOT_JUDGED)


def _document(failure: Repeatable, done: Replay) -> dict[str, object]:
    return {
        "schema_version": SCHEMA_VERSION,
        "test": failure.test_id,
        "seed": failure.seed,
        "found_on": failure.device,
        "attempts": [
            {
                "target": a.target.key,
                "serial": a.target.device.serial,
                "num_failed": a.num_failed,
                "num_rounds": a.num_rounds,
                "interval": list(a.bounds),
                "is_same_input": a.is_same_input,
                "problem": a.problem,
            }
            for a in done.attempts
        ],
        "conclusion": done.conclusion.value,
        "suspect": done.suspect,
        "is_simulated": done.is_simulated,
    }


def _table(failure: Repeatable, done: Replay) -> Table:
    title = f"{failure.test_id}, seed {failure.seed}, found on {failure.device}"
    if done.is_simulated:
        title += " (simulated)"
    table = Table(title=shown(title), title_justify="left", width=WIDTH)
    for name in ("target", "serial", "failed", "share at 95 %", "notes"):
        table.add_column(name, overflow="fold")
    for attempt in done.attempts:
        low, high = attempt.bounds
        table.add_row(
            shown(attempt.target.key),
            shown(attempt.target.device.serial or "not reported"),
            f"{attempt.num_failed} of {attempt.num_rounds}",
            f"{low:.1%} to {high:.1%}" if attempt.num_rounds else "-",
            attempt.problem or ("" if attempt.is_same_input else "other inputs"),
        )
    return table
