# SPDX-License-Identifier: Apache-2.0
"""`truestep fleet`: the life of the nodes of a cluster. One file a command."""

from __future__ import annotations

from importlib import import_module

import click

from truestep.errors import ConfigError

COMMANDS = {
    "attach": "Keep what other tools and the kernel log say of nodes.",
    "campaign": "Screen nodes through Slurm, and act on what is found.",
    "device": "In which nodes a device was, and what it showed there.",
    "history": "All that was recorded of a node or a device.",
    "hold": "Take nodes out by hand, or keep quarantined ones for study.",
    "incident": "What happened to a node, from the first suspicion to its return.",
    "ingest": "Fold folders of results into the history.",
    "init": "Make the history of a fleet.",
    "map": "Say which names are one node, its serial, rack and power domain.",
    "node": "Where a node is in its life, why, and what is in it.",
    "note": "Keep what a person knows of a node.",
    "release": "Give nodes back, after a repair or by force.",
    "rma": "What goes to the vendor with a bad device, and what was found.",
    "status": "How many nodes are where, and what needs a person.",
}


class LazyGroup(click.Group):
    """Loads a subcommand's module, and the database under it, only when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, its module loaded.

        Raises:
            ConfigError: The libraries of the extra `fleet` are not installed.
        """
        del ctx
        if cmd_name not in COMMANDS:
            return None
        try:
            command: click.Command = import_module(f"truestep.cli.fleet.{cmd_name}").command
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"`truestep fleet` needs the libraries of its extra, got no {error.name}. Install "
                "them with `pip install 'truestep[fleet]'`."
            ) from error
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without loading any."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group("fleet", cls=LazyGroup, epilog="Start with `truestep fleet init`.")
def command() -> None:
    """The life of the nodes of a cluster: what is known of each, and where it is.

    Exit status: 0 done, 2 it could not be done.
    """
