# SPDX-License-Identifier: Apache-2.0
"""Claims and returns that are made in one batch, at a time that a test chooses.

A claim waits in front of a scheduler that is stopped, a return for its own decision; those that come after it are one
batch when it goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from sqlalchemy import Connection, event, func, select

from gsaas import exceptions
from gsaas.db import claims as claim_rows
from gsaas.db import models
from gsaas.db.database import Database
from gsaas.gpgpums import committer
from gsaas.gpgpums.claims import Claims
from gsaas.limits import base as limits
from gsaas.objects.lease import Lease
from gsaas.objects.request import Request
from tests.services.test_claims_race import BOOKS, new_lease, open_claims, report_cloud
from tests.support.scheduling import (
    Committing,
    batches_of,
    is_writing,
    lock_of,
    number_waiting,
    pool_of,
)
from tests.support.waiting import PATIENCE, until

Done = TypeVar("Done")
WHOLE = Request(1)
PART = Request(1, "shared", 100)


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The attempts after which changes are tried again, without a pause."""
    made: list[int] = []
    monkeypatch.setattr(committer, "_pause", made.append)
    return made


@pytest.fixture
def claims(database: Database) -> Claims:
    """Claims that have read the pool of two hosts with four GPUs each, of 1000 MiB."""
    report_cloud(database, hosts=2, gpus_each=4)
    claims = open_claims(database, reserve_for=0)
    claims.check(WHOLE)
    return claims


def together(
    claims: Claims,
    batch: Committing,
    first: Callable[[], object],
    calls: Sequence[Callable[[], Done]],
) -> list[Future[Done]]:
    """Start *first*, and then *calls*, in this order, while the scheduler is stopped; then wait for all of them."""
    with ThreadPoolExecutor(len(calls) + 1) as threads:
        with lock_of(claims):
            started = [threads.submit(first)]
            until(lambda: is_writing(batch))
            for number, call in enumerate(calls, start=1):
                started.append(threads.submit(call))
                until(lambda number=number: number_waiting(batch) == number)
        return started[1:]


def claim_together(
    claims: Claims, *wanted: tuple[str, Request] | tuple[str, Request, Any]
) -> list[Future[Lease]]:
    """Claim for leases in one batch; each of *wanted* is the arguments of `claim`."""

    def first() -> None:
        with pytest.raises(exceptions.NeverFits):
            claims.claim(new_lease("first", Request(999)), Request(999))

    calls = [lambda one=one: claim(claims, *one) for one in wanted]
    return together(claims, batches_of(claims), first, calls)


def claim(
    claims: Claims,
    name: str,
    request: Request,
    policy: str | None = None,
    quota: limits.Amounts = limits.NO_LIMITS,
    **fields: Any,
) -> Lease:
    return claims.claim(new_lease(name, request).with_(**fields), request, policy, quota)


def lock_gpus(connection: Connection, uuids: Sequence[str]) -> None:
    """Lock GPUs as another transaction does."""
    claim_rows.lock_gpus(connection, uuids, waits=True)


@contextmanager
def commits(database: Database) -> Iterator[list[object]]:
    """Yield a list that gets an element for each commit of a transaction that has written."""
    wrote, committed = set[int](), list[object]()

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith(("SELECT", "SET")):
            wrote.add(id(connection.connection.dbapi_connection))

    def commit(connection: Any) -> None:
        if id(connection.connection.dbapi_connection) in wrote:
            wrote.remove(id(connection.connection.dbapi_connection))
            committed.append(connection)

    event.listen(database.engine, "before_cursor_execute", note)
    event.listen(database.engine, "commit", commit)
    yield committed
    event.remove(database.engine, "before_cursor_execute", note)
    event.remove(database.engine, "commit", commit)


def assert_books_are_right(database: Database, claims: Claims, held: int) -> None:
    """Check the GPUs against their claims in the database, and what the process knows of them."""
    with database.read() as session:
        rows = session.execute(BOOKS).all()
        assert session.scalar(select(func.count()).select_from(models.ClaimRow)) == held
    for row in rows:
        assert row.claimed_mb == row.used_mb <= row.memory_mb
        assert row.leases == row.holders
        if row.exclusive_lease_id is not None:
            assert (row.holders, row.used_mb) == (1, row.memory_mb)
    assert shown(claims) == stored(database)


def shown(claims: Claims) -> dict[str, tuple[Any, ...]]:
    with lock_of(claims):
        return {
            gpu.uuid: (gpu.used_mb, gpu.exclusive, gpu.generation, gpu.leases, gpu.given)
            for gpu in pool_of(claims)
        }


def stored(database: Database) -> dict[str, tuple[Any, ...]]:
    gpu = models.GpuRow
    columns = (gpu.uuid, gpu.used_mb, gpu.exclusive_lease_id, gpu.generation, gpu.leases, gpu.given)
    with database.read() as session:
        return {
            uuid: (used, holder is not None, *rest)
            for uuid, used, holder, *rest in session.execute(select(*columns))
        }


def return_together(database: Database, claims: Claims, names: Sequence[str]) -> None:
    """Return the claims of these leases in one batch, after that of another one."""
    claim(claims, "last", PART, remoting="lupine", has_server=False)
    batch = batches_of(claims)
    entered, go = threading.Event(), threading.Event()

    def decide(_: Lease) -> bool:
        entered.set()
        return go.wait(PATIENCE)

    with ThreadPoolExecutor(len(names) + 1) as threads:
        started = [threads.submit(claims.terminate, "last", if_=decide)]
        assert entered.wait(PATIENCE)
        for number, name in enumerate(names, start=1):
            started.append(threads.submit(claims.release, name))
            until(lambda number=number: number_waiting(batch) == number)
        go.set()
    for one in started:
        one.result()
