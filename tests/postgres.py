# SPDX-License-Identifier: Apache-2.0
"""A real PostgreSQL server of our own, on a socket and a port of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from open_folder import open_folder

USER = "postgres"


def _binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    return found[-1].parent if found else None


@dataclass(slots=True)
class Postgres:
    """A server that can be killed and started again."""

    folder: Path
    bin: Path
    port: int
    _databases: list[str] = field(default_factory=list)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of a database that nobody used before."""
        name = f"fleet{len(self._databases)}"
        self._databases.append(name)
        self._as_user("createdb", "-h", "127.0.0.1", "-p", str(self.port), name)
        return self.url(name)

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1"
        log = str(self.folder / "log")
        data = str(self.folder / "data")
        for attempts_left in reversed(range(20)):
            try:
                self._as_user("pg_ctl", "-D", data, "-w", "-l", log, "-o", options, "start")
            except subprocess.CalledProcessError:
                if not attempts_left:  # what was killed may hold its memory for a while
                    raise RuntimeError((self.folder / "log").read_text()[-2000:]) from None
                time.sleep(0.5)
            else:
                return

    def kill(self) -> None:
        """As when the machine fails: no time to write anything down."""
        pid = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        children = subprocess.run(
            ["pgrep", "-P", str(pid)], check=False, capture_output=True, text=True
        )
        for each in (pid, *map(int, children.stdout.split())):
            os.kill(each, signal.SIGKILL)

    def stop(self) -> None:
        self._as_user("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "stop")

    def _as_user(self, name: str, *arguments: str) -> None:
        command = [str(self.bin / name), *arguments]
        if os.geteuid() == 0:
            command = ["runuser", "-u", USER, "--", *command]
        subprocess.run(command, check=True, capture_output=True, timeout=60, cwd=self.folder)


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """A server that is stopped at the end; the test is skipped where there is none to start."""
    binaries = _binaries()
    if binaries is None:
        if os.environ.get("TRUESTEP_REQUIRE_SERVICES"):
            pytest.fail("PostgreSQL must be installed: apt-get install postgresql")
        pytest.skip("needs PostgreSQL")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with open_folder("postgres") as folder:
        if os.geteuid() == 0:
            shutil.chown(folder, USER, USER)
        server = Postgres(folder=folder, bin=binaries, port=port)
        data = str(folder / "data")
        server._as_user("initdb", "--no-sync", "-A", "trust", "-U", USER, "-E", "UTF8", data)
        server.start()
        try:
            yield server
        finally:
            with suppress(subprocess.CalledProcessError):  # it was killed
                server.stop()
