# SPDX-License-Identifier: Apache-2.0
"""The folder of a fleet: where its database is, and whatever else belongs to it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from truestep.errors import ConfigError, RecordError
from truestep.fleet.attached import statement
from truestep.fleet.incident import NOTE
from truestep.fleet.node_verdict import new_key
from truestep.reason import Reason
from truestep.record import Record
from truestep.store.durable import make_folder, read_regular, write_atomically
from truestep.store.history import Entry, History
from truestep.store.history.database import settled, url_of_file

FILE = "fleet.json"
VERSION = 1
LONGEST_NOTE = 10_000
_LIMIT_BYTES = 2**20

F = TypeVar("F", bound=Callable[..., Any])


def fleet_option(function: F) -> F:
    """The option that says which fleet."""
    return click.option(
        "--fleet",
        "folder",
        default="truestep-fleet",
        show_default=True,
        envvar="TRUESTEP_FLEET",
        show_envvar=True,
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder of the fleet.",
    )(function)


def make_fleet(folder: Path, url: str | None, *, is_simulation: bool) -> str:
    """Make the folder, the history and the signing key of a fleet; the URL of its database.

    Raises:
        ConfigError: There is a fleet in this folder already.
        RecordError: There is a history already, or it cannot be made.
    """
    url = settled(url) if url else None
    make_folder(folder.absolute())
    with _alone_in(folder):
        return _make_fleet(folder, url, is_simulation=is_simulation)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """One maker of a fleet at a time. The lock dies with its holder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if (folder / FILE).exists():
            raise ConfigError(f"{folder} must hold no fleet yet, got one. Name another folder.")
        yield
    finally:
        os.close(descriptor)


def _make_fleet(folder: Path, url: str | None, *, is_simulation: bool) -> str:
    file, own = folder / FILE, url_of_file(folder / "history.db")
    try:
        History.create(url or own, is_simulation=is_simulation).close()
    except RecordError:
        if url is not None or not _is_unused(own, is_simulation=is_simulation):
            raise
    url = url or own
    new_key(folder)
    write_atomically(file, json.dumps({"schema_version": VERSION, "db": url}).encode() + b"\n")
    return url


def _is_unused(url: str, *, is_simulation: bool) -> bool:
    """Whether an earlier try to make a fleet ended between its history and its file."""
    try:
        with History.open(url) as history:
            return history.is_simulation == is_simulation and not history.entries()
    except RecordError:
        return False


def url_of(folder: Path) -> str:
    """Where the history of a fleet is. It may hold a password.

    Raises:
        ConfigError: The folder holds no fleet.
    """
    file = folder / FILE
    try:
        data = json.loads(read_regular(file, limit_bytes=_LIMIT_BYTES))
    except FileNotFoundError:
        raise ConfigError(
            f"{folder} must be the folder of a fleet, got none. Run `truestep fleet init`, or "
            "name another with --fleet."
        ) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} must be JSON, got: {error}. Restore it from a copy.") from error
    url = data.get("db") if isinstance(data, dict) else None
    if not isinstance(url, str) or data.get("schema_version") != VERSION:
        raise ConfigError(
            f"{file} must hold schema_version {VERSION} and db, got others. Restore it from a copy."
        )
    return url


def note_of(history: History, entry: Entry, text: str) -> Record:
    """What a person says of a node, as a watch record that counts for nothing.

    Raises:
        ConfigError: The text is empty, or too long.
    """
    if not 0 < len(text.strip()) <= LONGEST_NOTE:
        raise ConfigError(f"a note must have 1 to {LONGEST_NOTE} characters, got {len(text)}.")
    return statement(
        entry,
        NOTE,
        Reason.PERSON_DECIDED,
        text,
        now_s=time.time(),
        is_simulated=history.is_simulation,
    )


def open_history(folder: Path) -> History:
    """The history of a fleet.

    Raises:
        ConfigError: The folder holds no fleet.
        RecordError: The history cannot be used.
    """
    return History.open(url_of(folder))
