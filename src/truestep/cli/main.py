# SPDX-License-Identifier: Apache-2.0
"""The `truestep` command. Each subcommand is one file, loaded when it is asked for."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from importlib import import_module

import click

from truestep import __version__
from truestep.backends.threads import one_thread
from truestep.cli.exit_codes import NOT_JUDGED
from truestep.errors import TruestepError
from truestep.report.printable import printable

COMMANDS = {
    "devices": "List the devices that can be screened here.",
    "fleet": "Follow the nodes of a cluster through their life.",
    "golden": "Make the shipped digests again, and compare.",
    "replay": "Repeat a saved failure here or on another device.",
    "screen": "Screen this node, and say what was ruled out.",
    "selftest": "Plant faults in every test and see that each is found.",
    "tests": "List the screening tests.",
}

COMPUTES_HERE = ("golden",)
"""Commands that compute in this process, and not in its workers."""


def _load_numpy() -> None:
    """Load numpy with one thread, and leave the environment as it was.

    For each thread OpenBLAS takes memory when it is loaded, and where there is none it ends the
    process with 1, which means a defect. Workers record the environment, so it must not change.
    """
    with one_thread():
        import_module("numpy")


class LazyGroup(click.Group):
    """Loads a subcommand's module only when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, its module loaded."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in COMPUTES_HERE:
            _load_numpy()
        command: click.Command = import_module(f"truestep.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without loading any."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with `truestep screen`. Shell completion: eval "
    '"$(_TRUESTEP_COMPLETE=bash_source truestep)" (or zsh_source, fish_source).',
)
@click.version_option(__version__, prog_name="truestep")
def cli() -> None:
    """Find silent data corruption on the machines that train large language models.

    Exit status: 0 every requested device passed, 1 a defect was found, 2 nothing could be judged
    (wrong use and an internal error included).
    """


def main() -> None:
    """Run the command line. Whatever goes wrong, the exit status is never 0 or 1 by accident."""
    code = NOT_JUDGED
    try:
        is_heard = _prepare_streams()
        code = _run()
        if _is_output_lost() or not is_heard:
            code = NOT_JUDGED
    except BaseException:  # noqa: BLE001  the interpreter would end with 1, which means a defect
        code = NOT_JUDGED
    sys.exit(code)


def _prepare_streams() -> bool:
    """Make the standard streams safe to use. False where standard output was closed at the start.

    A closed one is given the null device, so that no file opened later takes its number and gets
    what is printed. What an encoding lacks is escaped: a name must not turn a fail into an error.
    """
    is_heard = sys.stdout is not None
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    return is_heard


def _run() -> int:
    """The exit status of the command."""
    stdout = sys.stdout
    try:
        code = cli.main(standalone_mode=False)
    except SystemExit as end:
        # click wraps the stream and ends with 1 where the reader of the output has gone.
        code = end.code if sys.stdout is stdout else _fail("the reader of the output has gone")
    except click.exceptions.Exit as end:
        code = end.exit_code
    except click.ClickException as error:
        error.show()
        code = NOT_JUDGED
    except (click.Abort, KeyboardInterrupt):
        code = _fail("interrupted")
    except TruestepError as error:
        code = _fail(str(error))
    except OSError as error:
        code = _fail(f"a file or the output could not be used: {error}")
    except Exception:  # noqa: BLE001  an internal error must not look like a defect
        traceback.print_exc()
        code = _fail("internal error, nothing was judged")
    if code is None:
        return 0
    return code if isinstance(code, int) else NOT_JUDGED


def _fail(why: str) -> int:
    with contextlib.suppress(OSError):
        # A path or a database may hold what clears a terminal.
        print(f"truestep: {printable(why)}", file=sys.stderr)  # noqa: T201
    return NOT_JUDGED


def _is_output_lost() -> bool:
    """Whether the output cannot be written. It is said once; a result that nobody got is none."""
    is_lost = False
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        is_lost = True
        _fail(f"the output could not be written ({error})")
        # The interpreter flushes once more when it ends, and would end with a status of its own.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123
    return is_lost
