# SPDX-License-Identifier: Apache-2.0
"""Real database servers for tests: made in a directory of their own, ended and removed afterwards.

They listen on a socket in that directory only, run without privileges, and end with the test
process, however that ends. The machine's own servers are neither needed nor touched.
"""

from __future__ import annotations

import abc
import itertools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import sqlalchemy

from tests.support import folders
from tests.support.waiting import PATIENCE, until

USER, GROUP = "nobody", "nogroup"


class MissingServerError(Exception):
    """A program that these tests need is not installed; the message says what to install."""


class Server(abc.ABC):
    """Something that has databases. Use it in a `with` block."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    @abc.abstractmethod
    def url(self, name: str) -> str:
        """The SQLAlchemy URL of the database *name*."""

    @abc.abstractmethod
    def create(self, name: str) -> str:
        """Make an empty database and return its URL."""

    @abc.abstractmethod
    def drop(self, name: str) -> None:
        """Remove a database with all that is in it."""

    def unused_name(self) -> str:
        return f"test_{next(self._numbers)}"

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exc: object) -> None:
        return None


class Sqlite(Server):
    """A directory of SQLite files."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory

    def url(self, name: str) -> str:
        return f"sqlite:///{self.directory / name}.sqlite"

    def create(self, name: str) -> str:
        return self.url(name)

    def drop(self, name: str) -> None:
        for path in self.directory.glob(f"{name}.sqlite*"):
            path.unlink()


class Daemon(Server):
    """A database server process."""

    program: str
    package: str
    admin_database: str
    stop_signal = signal.SIGTERM

    def __enter__(self) -> Daemon:
        self.directory = folders.make("database")
        try:
            if os.geteuid() == 0:
                shutil.chown(self.directory, USER, GROUP)
            self.initialise()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self) -> None:
        """Start it, again after `kill`, and return once it answers."""
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                _unprivileged(self.command()), stdout=log, stderr=subprocess.STDOUT
            )
        self._await()

    def kill(self) -> None:
        """End it without warning, with the processes that it has started: PostgreSQL has one for each connection."""
        started = children(self._process.pid)
        self._process.kill()
        for pid in started:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        until(lambda: not any(map(runs, started)), f"the processes of {self.program} to end")

    def stop(self) -> None:
        """End it as a service manager does: clients are told."""
        self._process.send_signal(self.stop_signal)
        self._process.wait(PATIENCE)

    def __exit__(self, *exc: object) -> None:
        process = getattr(self, "_process", None)
        if process is not None:
            process.send_signal(self.stop_signal)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.directory)

    @property
    def pid(self) -> int:
        return self._process.pid

    @abc.abstractmethod
    def initialise(self) -> None:
        """Make the files of a new server in `directory`."""

    @abc.abstractmethod
    def command(self) -> Sequence[str]:
        """What runs the server in the foreground."""

    def find(self, program: str) -> str:
        """Return the path of one of the server's programs."""
        path = shutil.which(program)
        if path is None:
            raise MissingServerError(
                f"{program} is not installed, and these tests ask a real server; "
                f"on Debian and Ubuntu: apt-get install {self.package}"
            )
        return path

    def run(self, *command: str) -> None:
        """Run one of the server's programs to its end."""
        done = subprocess.run(_unprivileged(command), capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {done.stdout}{done.stderr}")

    def create(self, name: str, options: str = "") -> str:
        """Make an empty database, with what follows its name in SQL, and return its URL."""
        self._administer(f"CREATE DATABASE {name} {options}")
        return self.url(name)

    def drop(self, name: str) -> None:
        self._administer(f"DROP DATABASE {name}")

    def _administer(self, statement: str) -> None:
        engine = sqlalchemy.create_engine(
            self.url(self.admin_database),
            isolation_level="AUTOCOMMIT",
            poolclass=sqlalchemy.NullPool,
        )
        with engine.connect() as connection:
            connection.exec_driver_sql(statement)

    def _await(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self._administer("SELECT 1")
            except sqlalchemy.exc.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    log = (self.directory / "log").read_text(errors="replace")
                    raise RuntimeError(f"{self.program} did not start:\n{log}") from None
                time.sleep(0.05)


class MariaDB(Daemon):
    program = "mariadbd"
    package = "mariadb-server-core mariadb-client-core"
    admin_database = "mysql"

    def initialise(self) -> None:
        self.find(self.program)
        self.run(
            self.find("mariadb-install-db"),
            "--no-defaults",
            f"--datadir={self.directory / 'data'}",
            f"--tmpdir={self.directory}",  # two servers have been seen to use one name in /tmp
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
        )

    def command(self) -> Sequence[str]:
        return (
            self.find(self.program),
            "--no-defaults",
            f"--datadir={self.directory / 'data'}",
            f"--tmpdir={self.directory}",
            f"--socket={self.directory / 'socket'}",
            f"--pid-file={self.directory / 'pid'}",
            "--skip-networking",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-buffer-pool-size=64M",
        )

    def url(self, name: str) -> str:
        return f"mysql+pymysql://root@/{name}?unix_socket={self.directory / 'socket'}"

    def status(self, variable: str) -> str:
        """The value of one of the server's status variables."""
        engine = sqlalchemy.create_engine(
            self.url(self.admin_database), poolclass=sqlalchemy.NullPool
        )
        with engine.connect() as connection:
            shown = connection.exec_driver_sql(f"SHOW GLOBAL STATUS LIKE '{variable}'")
            return str(shown.one()[1])


class PostgreSQL(Daemon):
    program = "postgres"
    package = "postgresql"
    admin_database = "postgres"
    stop_signal = signal.SIGINT  # do not wait for clients

    def find(self, program: str) -> str:
        """Debian keeps them apart by version, off the search path; the newest is taken."""
        versions = Path("/usr/lib/postgresql").glob(f"*/bin/{program}")
        newest = max(versions, key=lambda path: int(path.parts[-3]), default=None)
        return str(newest) if newest else super().find(program)

    def initialise(self) -> None:
        self.find(self.program)
        self.run(
            self.find("initdb"),
            f"--pgdata={self.directory / 'data'}",
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
        )

    def command(self) -> Sequence[str]:
        return (
            self.find(self.program),
            "-D",
            str(self.directory / "data"),
            "-k",
            str(self.directory),
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=off",
        )

    def url(self, name: str) -> str:
        return f"postgresql+psycopg://postgres@/{name}?host={self.directory}"


def children(parent: int) -> list[int]:
    """Return the pids of the processes that a process has started."""
    return [
        int(folder.name)
        for folder in Path("/proc").glob("[0-9]*")
        if (state := _state(int(folder.name))) and int(state[1]) == parent
    ]


def runs(pid: int) -> bool:
    """Return whether a process is there, and not only waits for its parent to hear of its end."""
    state = _state(pid)
    return bool(state) and state[0] != "Z"


def _state(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; none if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _unprivileged(command: Sequence[str]) -> list[str]:
    """*command*, so that it is not root's, and does not outlive the test process."""
    identity = []
    if os.geteuid() == 0:
        identity = [f"--reuid={USER}", f"--regid={GROUP}", "--clear-groups"]
    return ["setpriv", *identity, "--pdeathsig=KILL", "--", *command]
