# SPDX-License-Identifier: Apache-2.0
"""`truestep screen`: the main job."""

from __future__ import annotations

import math
import re
import secrets
import sys

import click

from truestep.cli import options, output, simulation
from truestep.cli.exit_codes import ExitStyle
from truestep.cli.progress import Bar, Stop

EXAMPLES = """\b
Examples:
  truestep screen                            all devices of this node, level 1
  truestep screen --level 3 --json           15 minutes, one JSON document
  truestep screen --test matmul --device cpu:0
  truestep screen --simulate flip:matmul/fp32,rate=0.005,device=sim:1 --simulate-devices 2
"""


def _finite(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """The value; not a number lies in every range."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"must be a finite number, got {value}.", ctx=ctx, param=param)
    return value


def _run_id(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """The name of the run, fit to be part of a file name."""
    if value and not re.fullmatch(r"[a-z0-9]{12,64}", value):
        raise click.BadParameter(
            f"must be 12 to 64 small letters and digits, got {value!r}.", ctx=ctx, param=param
        )
    return value


@click.command("screen", epilog=EXAMPLES)
@options.level
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True, max=100_000),
    callback=_finite,
    help="Time for all tests together; every test still does its least number of rounds.",
)
@options.backend
@options.devices
@options.tests
@click.option(
    "--seed",
    type=click.IntRange(0, 2**64 - 1),
    help="Seed of every input. Drawn anew if it is not given, and always reported.",
)
@options.as_json
@click.option(
    "--out",
    default=output.DEFAULT_FOLDER,
    show_default=True,
    metavar="DIR",
    help="Folder for the journal, the result and the evidence.",
)
@click.option(
    "--exit-style",
    type=click.Choice([s.value for s in ExitStyle]),
    default=ExitStyle.STANDARD.value,
    show_default=True,
    help="slurm: 1 only for a confirmed fail of this node's hardware, else 0 (any other status "
    "drains in a prolog). nagios: 0, 2 critical, 3 unknown.",
)
@click.option(
    "--run-id",
    default="",
    callback=_run_id,
    metavar="ID",
    help="Name of the run that a fleet's controller gave out. Drawn anew if it is not given.",
)
@click.option("--allow-busy", is_flag=True, help="Screen devices that others use, too.")
@click.option("--long", "is_long", is_flag=True, help="Show the power of every operation.")
@options.simulation
def command(
    level: int,
    minutes: float | None,
    backend: str,
    devices: tuple[str, ...],
    tests: tuple[str, ...],
    seed: int | None,
    as_json: bool,
    out: str,
    exit_style: str,
    run_id: str,
    allow_busy: bool,
    is_long: bool,
    simulate: tuple[str, ...],
    simulate_devices: int,
) -> None:
    """Screen this node by exact arithmetic, and say what was ruled out.

    Every result is compared with bits that any correct device must give. Clocks and modes are
    never touched, and only granted devices, processors and memory are used.
    """
    from truestep.backends.open import resolve
    from truestep.screening.launch import start_server
    from truestep.screening.request import Request
    from truestep.screening.runner import screen

    faults, is_blind = simulation.parse(simulate)
    name = resolve(backend)
    results = output.open_results(out)
    request = Request(
        backend=name,
        level=level,
        budget_s=None if minutes is None else minutes * 60,
        devices=devices,
        tests=tests,
        seed=secrets.randbits(64) if seed is None else seed,
        evidence_dir=results.evidence_dir,
        allow_busy=allow_busy,
        num_simulated=simulate_devices,
        faults=faults,
        is_blind=is_blind,
        run_id=run_id,
    )
    stop = Stop()
    bar = Bar(output.console(is_error=True), stop)
    with stop.listening(), bar.showing():
        report = screen(request, context=start_server(name), progress=bar, keep=results.keep)
    code = output.code_for(report, ExitStyle(exit_style))
    output.show(report, results, code=code, as_json=as_json, is_long=is_long)
    if exit_style == ExitStyle.SLURM and report.outcome != "pass" and not code:
        click.echo(f"truestep: alert: outcome {report.outcome}, exit status 0 by style", err=True)
    sys.exit(code)
