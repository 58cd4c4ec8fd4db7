# SPDX-License-Identifier: Apache-2.0
"""MariaDB: one server, one database and one user per service."""

from __future__ import annotations

import shutil

from tests.openstack.bed import commands, processes
from tests.openstack.bed.settings import ADDRESS, LOG, MARIADB_PORT, RUN, STATE, password
from tests.openstack.bed.work import Unit

DATA = STATE / "mariadb"
SOCKET = RUN / "mariadb.sock"

DAEMON = processes.Daemon(
    name="mariadb",
    command=(
        "/usr/sbin/mariadbd",
        "--no-defaults",
        "--user=root",
        f"--datadir={DATA}",
        f"--socket={SOCKET}",
        f"--pid-file={RUN / 'mariadb.pid'}",
        f"--bind-address={ADDRESS}",
        f"--port={MARIADB_PORT}",
        "--skip-name-resolve",
        "--max-connections=500",
        "--character-set-server=utf8mb3",
        "--innodb-buffer-pool-size=128M",
        "--performance-schema=0",
        # Nobody mourns this data after a power cut, so nothing waits for the disk.
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-flush-method=nosync",
        "--innodb-doublewrite=0",
        "--skip-log-bin",
    ),
    ports=(MARIADB_PORT,),
    ready=lambda: SOCKET.exists() and commands.succeeds(*CLIENT, "-e", "SELECT 1"),
)

CLIENT = ("mariadb", "--no-defaults", "--user=root", f"--socket={SOCKET}", "--batch", "-N")


def units() -> list[Unit]:
    return [Unit("database", prepare=initialise, daemons=(DAEMON,))]


def initialise() -> None:
    """Make an empty server, unless there is one."""
    if DATA.exists():
        return
    unfinished = DATA.with_name("mariadb.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    LOG.mkdir(parents=True, exist_ok=True)
    commands.run(
        "mariadb-install-db",
        "--no-defaults",
        "--user=root",
        f"--datadir={unfinished}",
        "--auth-root-authentication-method=socket",
        "--auth-root-socket-user=root",
        "--skip-test-db",
    )
    unfinished.rename(DATA)


def create(name: str, user: str) -> None:
    """Have a database *name* that *user* owns."""
    secret = password(f"database-{user}")
    query(
        f"CREATE DATABASE IF NOT EXISTS {name};"
        f"CREATE USER IF NOT EXISTS '{user}'@'{ADDRESS}' IDENTIFIED BY '{secret}';"
        f"GRANT ALL ON {name}.* TO '{user}'@'{ADDRESS}'"
    )


def drop(name: str, user: str) -> None:
    """Have no database *name* and no *user*, from wherever he may have come."""
    accounts = query(
        f"SELECT CONCAT(QUOTE(User), '@', QUOTE(Host)) FROM mysql.user WHERE User = '{user}'"
    )
    query(
        ";".join([f"DROP DATABASE IF EXISTS {name}", *(f"DROP USER {each}" for each in accounts)])
    )


def url(name: str, user: str) -> str:
    """The SQLAlchemy URL of the database *name* for *user*."""
    secret = password(f"database-{user}")
    return f"mysql+pymysql://{user}:{secret}@{ADDRESS}:{MARIADB_PORT}/{name}?charset=utf8mb4"


def query(statement: str, database: str = "") -> list[str]:
    """Run SQL as the server's administrator; return the lines that it answers."""
    chosen = [f"--database={database}"] if database else []
    return commands.run(*CLIENT, *chosen, text=statement).splitlines()
