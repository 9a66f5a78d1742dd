# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share, written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

Command = Callable[..., Any]


class NameOfTest(click.ParamType[str]):
    """An id or a group of tests, with completion."""

    name = "id|group"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Ids and groups that begin like this."""
        from truestep.screening import registry

        del ctx, param
        tests = registry.all_tests()
        names = sorted({t.id for t in tests} | registry.groups(tests))
        return [CompletionItem(n) for n in names if n.startswith(incomplete)]


def backend(command: Command) -> Command:
    """`--backend`."""
    return click.option(
        "--backend",
        default="auto",
        show_default=True,
        metavar="auto|numpy|torch|jax",
        help="Library that computes; auto takes torch where it is installed.",
    )(command)


def level(command: Command) -> Command:
    """`--level`."""
    return click.option(
        "--level",
        type=click.IntRange(1, 4),
        default=1,
        show_default=True,
        help="1 quick (45 s), 2 medium (2 min), 3 long (15 min), 4 extended (1.5 h).",
    )(command)


def devices(command: Command) -> Command:
    """`--device`."""
    return click.option(
        "--device",
        "devices",
        multiple=True,
        metavar="ID",
        help="Screen only this device; may be given several times.",
    )(command)


def tests(command: Command) -> Command:
    """`--test`."""
    return click.option(
        "--test",
        "tests",
        type=NameOfTest(),
        multiple=True,
        help="Run only this test or group; may be given several times.",
    )(command)


def simulation(command: Command) -> Command:
    """`--simulate` and `--simulate-devices`."""
    command = click.option(
        "--simulate-devices",
        type=click.IntRange(0, 1024),
        default=0,
        metavar="N",
        help="Screen N invented devices instead of real ones. Marked simulated everywhere.",
    )(command)
    return click.option(
        "--simulate",
        "simulate",
        multiple=True,
        metavar="KIND:SITE[,rate=..]",
        help="Plant a fault: flip, stuck, nullify or scale at a site such as matmul/fp32, with "
        "rate, bit, index, factor, device, unit. `blind` switches the comparison off.",
    )(command)


def as_json(command: Command) -> Command:
    """`--json`."""
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="One JSON document on standard output; everything else on standard error.",
    )(command)
