# SPDX-License-Identifier: Apache-2.0
"""Checks that the configured database can be used by this release, and says in sentences what is wrong if not."""

from __future__ import annotations

import sqlalchemy
from oslo_config import cfg
from oslo_db import exception as db_exception

from gsaas.db import migration
from gsaas.db.database import Database
from gsaas.db.engines import section

ERRORS = (sqlalchemy.exc.SQLAlchemyError, db_exception.DBError)
"""Errors of a database that cannot do what it is asked."""

DRIVERS = {"mysql": "pymysql", "mariadb": "pymysql", "postgresql": "psycopg"}
"""Kind of database -> the driver of SQLAlchemy that GSaaS is tested with, and an extra of GSaaS brings."""


class Unusable(Exception):
    """The database cannot be used; the message says why in one sentence."""


def connect(conf: cfg.ConfigOpts) -> Database:
    """Connect as `[database]` says, with one attempt, so that an error is reported at once. Raises `Unusable`."""
    url = section(conf).connection
    if not url:
        raise Unusable("no database is configured: set connection in the section [database]")
    try:
        where = printable(url)
    except sqlalchemy.exc.ArgumentError as error:
        raise Unusable("[database]connection is not a database URL") from error
    try:
        database = Database.connect(conf, max_retries=0)
        with database.engine.connect():
            return database
    except ModuleNotFoundError as error:
        raise Unusable(f"cannot connect to {where}: {error}{_remedy(url)}") from error
    except (*ERRORS, ImportError) as error:
        raise Unusable(f"cannot connect to {where}: {cause(error)}") from error


def problem(current: str | None) -> str | None:
    """Return what is wrong with a database at revision *current*, and what to do; None if it can be used."""
    if current == migration.head():
        return None
    if current is None:
        return "the database has no tables of GSaaS yet; run: gsaas-manage db upgrade"
    if migration.knows(current):
        return (
            f"the database is at revision {current}, this release needs {migration.head()}; "
            "run: gsaas-manage db upgrade"
        )
    return (
        f"the database is at revision {current}, which this release does not know: "
        "a newer GSaaS has upgraded it"
    )


def printable(url: str) -> str:
    """Return a database URL without its password; raises `sqlalchemy.exc.ArgumentError` if it is not valid."""
    return sqlalchemy.make_url(url).render_as_string(hide_password=True)


def _remedy(url: str) -> str:
    """Return what to do if the driver that *url* names is not installed, to follow the error; or nothing."""
    parsed = sqlalchemy.make_url(url)
    kind = parsed.get_backend_name()
    if (driver := DRIVERS.get(kind)) is None:
        return ""
    extra = "postgresql" if kind == "postgresql" else "mysql"
    if parsed.drivername == f"{kind}+{driver}":
        return f"; install gsaas[{extra}], which brings it"
    return f"; begin the URL with {kind}+{driver}:// and install gsaas[{extra}], which brings that driver"


def cause(error: BaseException) -> str:
    """Return the driver's own message, without what SQLAlchemy and oslo.db wrap around it."""
    while inner := getattr(error, "inner_exception", None) or getattr(error, "orig", None):
        error = inner
    return " ".join(str(error).split())
