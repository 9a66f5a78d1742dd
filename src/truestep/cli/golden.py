# SPDX-License-Identifier: Apache-2.0
"""`truestep golden`: make the shipped digests again, and compare."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from truestep.cli.exit_codes import DEFECT

CROSS_CHECK_EVERY = 40
"""Steps between those of a larger training that int64 repeats."""


@click.group("golden", epilog="Example: truestep golden exact --size S --check")
def command() -> None:
    """Digests that every correct device must give."""


@command.command("exact", epilog="Example: truestep golden exact --size S --check")
@click.option("--size", required=True, metavar="S|M|L", help="Which training.")
@click.option(
    "--class",
    "value_class",
    default="accumulator",
    show_default=True,
    metavar="accumulator|bf16",
    help="Accumulators as they are, or rounded once to bf16.",
)
@click.option("--check", is_flag=True, help="Compare with what is shipped.")
@click.option(
    "--out",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Write the golden into this folder.",
)
def exact(size: str, value_class: str, check: bool, out: Path | None) -> None:
    """Train the exact transformer on this host and digest every accumulator.

    S is computed in int64; M and L by float64 BLAS, with some steps repeated in int64.

    Exit status 0 if the digests are equal or were written, 1 if they differ (the first difference
    is named), 2 for wrong use.
    """
    from truestep.workloads import exact_goldens

    if check == (out is not None):
        raise click.UsageError("one of --check and --out must be given, and only one.")
    chosen = exact_goldens.size_of(size)
    shipped = exact_goldens.load(chosen, value_class) if check else None
    every = 0 if chosen.name == "S" else CROSS_CHECK_EVERY
    made = exact_goldens.regenerate(chosen, value_class, check_every=every)
    if out is not None:
        click.echo(f"wrote {exact_goldens.save(made, out)}")
        return
    assert shipped is not None
    place = shipped.first_difference(made.digests)
    if place is not None:
        click.echo(f"exact {size} {value_class}: the first difference is at {place}")
        sys.exit(DEFECT)
    num = made.digests.shape[0] * made.digests.shape[1]
    click.echo(f"exact {size} {value_class}: all {num} digests are equal")
