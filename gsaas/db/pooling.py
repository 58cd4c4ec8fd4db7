# SPDX-License-Identifier: Apache-2.0
"""How connections to a database server are kept for later use, and in which state a transaction finds them.

An SQLAlchemy plugin, because oslo.db makes the engine: https://docs.sqlalchemy.org/en/20/core/connections.html
(`CreateEnginePlugin`). It saves the round trips around each transaction that a claim would wait for.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy
from sqlalchemy import event, exc
from sqlalchemy.dialects import plugins
from sqlalchemy.engine import CreateEnginePlugin

NAME = "gsaas_pooling"

ISOLATION = {"mysql": "READ COMMITTED"}
"""Dialect -> the isolation level of transactions that do not set another one: they see what others committed, and lock
the rows that they name, not the gaps between.

Under the default of MariaDB and MySQL, REPEATABLE READ, two claims of neighbouring keys can end in a deadlock. The
default of PostgreSQL is READ COMMITTED.
"""

UNCHECKED = 0.5
"""Seconds after its last use for which a connection counts as alive, unless the server has closed it. One that has been
idle for longer is asked first: a firewall may have forgotten it, or the server's machine may be gone."""

PATIENCE = 0.5
"""Seconds for which a transaction waits for a connection that the pool keeps, before another one is opened."""

_RETURNED = "gsaas returned"


class Turns:
    """Has as many transactions at once as the pool of *engine* keeps connections; more where one waits for `PATIENCE`.

    The pool closes a connection beyond those that it keeps (`max_pool_size`) after its use, and opening the next one
    costs more than a claim. With more transactions at once, a process works no faster, and the server slower. After
    `PATIENCE`, those of the others are long ones, behind which nobody has to wait (`max_overflow`).
    """

    def __init__(self, engine: sqlalchemy.Engine) -> None:
        # A pool that is not one of a number of connections has no size, and 0 means no limit.
        kept = engine.pool.size() if isinstance(engine.pool, sqlalchemy.QueuePool) else 0
        self._free = threading.Semaphore(kept) if kept > 0 else None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn, and have it during the block."""
        has_turn = self._free is not None and self._free.acquire(timeout=PATIENCE)
        try:
            yield
        finally:
            if has_turn and self._free is not None:
                self._free.release()


class Pooling(CreateEnginePlugin):
    """Sets the isolation level once per connection, rolls nothing back, and pings only what was idle or was closed.

    A pool would roll back each connection that is returned. But SQLAlchemy has ended each transaction that it began by
    then, and GSaaS begins none in another way. oslo.db would have each connection pinged before each use.
    """

    def handle_dialect_kwargs(self, dialect_cls: Any, dialect_args: dict[str, Any]) -> None:
        """Set the isolation level of new connections."""
        if level := ISOLATION.get(dialect_cls.name):
            dialect_args["isolation_level"] = level

    def handle_pool_kwargs(self, pool_cls: Any, pool_args: dict[str, Any]) -> None:
        """Turn off the rollback and the ping before each use."""
        pool_args["reset_on_return"] = None
        pool_args["pre_ping"] = False

    def update_url(self, url: sqlalchemy.URL) -> sqlalchemy.URL:
        """Return *url* as it is; SQLAlchemy removes the plugin's own name."""
        return url

    def engine_created(self, engine: sqlalchemy.Engine) -> None:
        """Have connections that were idle, or that the server has closed, pinged before their use."""

        def returned(_: Any, record: Any) -> None:
            record.info[_RETURNED] = time.monotonic()

        def used(connection: Any, record: Any, _: Any) -> None:
            at = record.info.get(_RETURNED)  # None for a new connection
            if at is not None and (
                time.monotonic() - at > UNCHECKED or _has_something_to_say(connection)
            ):
                _ping(engine.dialect, connection)

        event.listen(engine, "checkin", returned)
        event.listen(engine, "checkout", used)


def _has_something_to_say(connection: Any) -> bool:
    """Return whether the server has sent data without a request: usually, it has closed the connection. Does not wait.

    True for a connection of a driver that does not show its socket.
    """
    try:
        # psycopg and mysqlclient show it; PyMySQL has no public name for it.
        shown = connection if hasattr(connection, "fileno") else connection._sock
        poll = select.poll()
        poll.register(shown.fileno(), select.POLLIN)
        return bool(poll.poll(0))
    except Exception:  # noqa: BLE001 - whatever a driver raises of a connection that is closed
        return True


def _ping(dialect: Any, connection: Any) -> None:
    """Ask the server for an answer; if it has closed the connection, have the pool open all of its connections anew."""
    try:
        dialect.do_ping(connection)
    except dialect.loaded_dbapi.Error as error:
        if dialect.is_disconnect(error, connection, None):
            raise exc.InvalidatePoolError from error
        raise


plugins.register(NAME, __name__, Pooling.__name__)


def pooled(url: sqlalchemy.URL) -> sqlalchemy.URL:
    """Return the *url* of a database server with this plugin."""
    return url.update_query_pairs([("plugin", NAME)], append=True)
