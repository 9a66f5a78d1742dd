# SPDX-License-Identifier: Apache-2.0
"""The database under a history: SQLite or PostgreSQL, opened, checked, locked, and its errors."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import (
    Connection,
    Engine,
    create_engine,
    event,
    inspect,
    text,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from truestep.errors import ConfigError, RecordError
from truestep.store.durable import OWNER_ONLY, make_folder, open_regular
from truestep.store.history.tables import VERSION

WAIT_S = 30.0
"""How long a writer waits for another."""

_WRITERS, _CONTROLLER = 0x7255_0001, 0x7255_0002
"""Numbers of the advisory locks in PostgreSQL."""


class Database:
    """One database, from which transactions are taken.

    Attributes:
        url: Where it is. Its text form hides the password.
    """

    def __init__(self, url: str) -> None:
        self.url = _parsed(url)
        self._engine = _engine(self.url)

    @property
    def is_sqlite(self) -> bool:
        """Whether it is a file of ours and no server."""
        return self.url.get_backend_name() == "sqlite"

    @property
    def path(self) -> Path:
        """Where the file of SQLite is."""
        return Path(self.url.database or "")

    def close(self) -> None:
        """Give all connections back."""
        self._engine.dispose()

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that sees one state of the database."""
        with self._told(), self._engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that is alone in writing: all of it is kept, or nothing.

        Raises:
            RecordError: The database is gone, full, or locked for longer than `WAIT_S`.
        """
        with self._told(), self._engine.connect() as connection:
            writing = connection.execution_options(truestep_writes=True)
            with writing.begin():
                if not self.is_sqlite:
                    writing.execute(text(f"SELECT pg_advisory_xact_lock({_WRITERS})"))
                yield writing

    @contextlib.contextmanager
    def controller(self) -> Iterator[None]:
        """Be the only controller. The lock dies with its holder.

        Raises:
            RecordError: There is another.
        """
        with contextlib.ExitStack() as stack:
            if self.is_sqlite:
                lock = self.path.with_name(f"{self.path.name}.controller")
                descriptor = stack.enter_context(open_regular(lock, os.O_RDWR | os.O_CREAT))
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise self._is_controlled() from None
            else:
                stack.enter_context(self._told())
                connection = stack.enter_context(self._engine.connect())
                query = text(f"SELECT pg_try_advisory_lock({_CONTROLLER})")
                if not connection.execute(query).scalar():
                    raise self._is_controlled()
                connection.commit()
                stack.callback(connection.invalidate)
            yield

    def version(self) -> str:
        """The version of the tables; empty where there are none."""
        if self.is_sqlite and not self.path.exists():
            return ""
        with self.read() as connection:
            if not inspect(connection).has_table("alembic_version"):
                return ""
            return str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar())

    def upgrade(self) -> None:
        """Bring the tables to the newest version; make them where there are none."""
        if self.is_sqlite:
            make_folder(self.path.absolute().parent)
            with self._told(), open_regular(self.path, os.O_RDWR | os.O_CREAT):
                self.path.chmod(OWNER_ONLY)
        config = Config()
        config.set_main_option("script_location", "truestep.store.history:migrations")
        with self.write() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    def check(self) -> None:
        """Refuse what is no history of this version.

        Raises:
            RecordError: There is none, or it is of another version.
        """
        found = self.version()
        if not found:
            raise RecordError(
                f"{self.url} must be a history, got nothing. Make one with "
                "`truestep fleet init`, or restore it from a copy."
            )
        if found != VERSION:
            raise RecordError(
                f"{self.url} must be a history of version {VERSION}, got {found}. Run `truestep "
                "fleet init --upgrade` with the newest version of truestep."
            )

    def _is_controlled(self) -> RecordError:
        return RecordError(
            f"{self.url} must have one controller at a time, got another that is at work. "
            "Wait until it has ended."
        )

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Turn the database's errors into ours, without SQL, values or passwords."""
        try:
            yield
        except DBAPIError as error:
            said = " ".join(str(error.orig).split())[:300]
            raise RecordError(
                f"{self.url} must be usable, got: {said}. What was being written is not kept, all "
                "else is. Run the command again when the database is back."
            ) from None
        except SQLAlchemyError as error:
            raise RecordError(
                f"{self.url} must be usable, got {type(error).__name__}. Check the database."
            ) from error


def url_of_file(path: Path) -> str:
    """The URL of a database in a file, whatever characters its path has."""
    return URL.create("sqlite", database=str(path.absolute())).render_as_string()


def settled(url: str) -> str:
    """The URL that means the same from whatever folder it is used.

    Raises:
        ConfigError: It is none of ours.
    """
    parsed = _parsed(url)
    is_file = parsed.get_backend_name() == "sqlite"
    return url_of_file(Path(parsed.database or "")) if is_file else url


def _parsed(url: str) -> URL:
    try:
        url.encode()
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # The text may hold a password.
        raise ConfigError(
            "a database must be sqlite:///FILE or postgresql://USER@HOST/NAME, got another text."
        ) from None
    backend = parsed.drivername
    if "password" in parsed.query:
        raise ConfigError(
            "a password must stand before the host or in ~/.pgpass, got one among the parameters, "
            "where it would be shown."
        )
    if backend in ("postgresql", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    is_file = backend == "sqlite" and parsed.database not in (None, "", ":memory:")
    if not is_file or parsed.query:
        raise ConfigError(
            f"a database must be sqlite:///FILE or postgresql://USER@HOST/NAME, got {backend!a:.40}"
            f"{' with parameters' if parsed.query else ''}."
        )
    return parsed


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "postgresql":
        # No check before use: a server that was away must be noticed, as its locks are lost.
        return create_engine(url, isolation_level="READ COMMITTED", hide_parameters=True)
    engine = create_engine(url, poolclass=NullPool, hide_parameters=True)

    @event.listens_for(engine, "connect")
    def connected(connection, _) -> None:  # type: ignore[no-untyped-def]
        connection.isolation_level = None  # transactions are begun below, not by the driver
        for setting in (
            "foreign_keys=ON",
            f"busy_timeout={int(WAIT_S * 1000)}",
            "journal_mode=WAL",
            "synchronous=FULL",
        ):
            connection.execute(f"PRAGMA {setting}")

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        writes = connection.get_execution_options().get("truestep_writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
