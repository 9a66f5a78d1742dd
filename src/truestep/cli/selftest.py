# SPDX-License-Identifier: Apache-2.0
"""`truestep selftest`: is the checker alive on this machine?"""

from __future__ import annotations

import sys

import click

from truestep.cli import options, output
from truestep.cli.exit_codes import DEFECT, NOT_JUDGED, PASSED
from truestep.cli.progress import Bar, Stop
from truestep.report import tables


@click.command("selftest", epilog="Example: truestep selftest --test matmul")
@options.backend
@options.devices
@options.tests
@options.simulation
def command(
    backend: str,
    devices: tuple[str, ...],
    tests: tuple[str, ...],
    simulate: tuple[str, ...],
    simulate_devices: int,
) -> None:
    """Plant the smallest fault beneath every test on every device, and see that it is found.

    Exit status 0 if every planted fault was found, 2 if one was missed or could not be planted,
    1 if a defect was found on the way.
    """
    from truestep.backends.open import resolve
    from truestep.cli import simulation
    from truestep.screening.launch import start_server
    from truestep.screening.request import Request
    from truestep.screening.runner import screen

    faults, is_blind = simulation.parse(simulate)
    request = Request(
        backend=resolve(backend),
        devices=devices,
        tests=tests,
        budget_s=0.001,
        num_simulated=simulate_devices,
        faults=faults,
        is_blind=is_blind,
    )
    stop = Stop()
    bar = Bar(output.console(is_error=True), stop)
    context = start_server(request.backend)
    with stop.listening(), bar.showing():
        report = screen(request, context=context, progress=bar, keep=lambda _: None)
    caught = [r for r in report.records if r.verdict and r.verdict.selftest_caught]
    out = output.console()
    findings = tables.findings_table(report.records)
    if findings is not None:
        out.print(findings)
    if report.not_covered:
        out.print(f"Not tried here: {'; '.join(report.not_covered)}", markup=False)
    out.print(f"Planted faults found in {len(caught)} of {len(report.records)} tests.")
    if report.outcome == "fail":
        sys.exit(DEFECT)
    sys.exit(PASSED if report.records and len(caught) == len(report.records) else NOT_JUDGED)
