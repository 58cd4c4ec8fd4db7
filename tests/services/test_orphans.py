# SPDX-License-Identifier: Apache-2.0
"""Rows that belong to no lease that may have them are found and removed on every database, and no others."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from gsaas.db import orphans, recount
from gsaas.db.database import Database
from gsaas.db.models import ClaimRow, GpuRow, ReservedShareRow
from tests.support import rows

pytestmark = pytest.mark.services


def add(database: Database, *added: object) -> None:
    for row in added:  # in this order, as one refers to another
        with database.write() as session:
            session.add(row)


def test_the_claims_of_a_lease_in_the_queue_are_orphans(database: Database) -> None:
    add(
        database,
        rows.host(),
        rows.gpu(used_mb=2048, leases=1),
        rows.lease("claimed"),
        rows.claim("claimed", memory_mb=2048),
        rows.lease("queued", status="QUEUED", queued_at=rows.second(1)),
        rows.claim("queued", position=0, memory_mb=1024),
    )
    with database.reading() as connection:
        assert orphans.claims(connection) == {"queued": ["GPU-a"]}
    for lease_id in ("queued", "claimed"):  # the second one has none that is an orphan
        database.change(lambda connection, this=lease_id: orphans.delete_claims(connection, this))
    with database.read() as session:
        assert session.scalars(select(ClaimRow.lease_id)).all() == ["claimed"]
        assert session.scalars(select(GpuRow.used_mb)).all() == [2048]
        assert recount.miscounted(session.connection()) == []


def test_shares_of_a_lease_without_claims_are_orphans(database: Database) -> None:
    add(
        database,
        rows.host(),
        rows.gpu(used_mb=2048, leases=1),
        rows.lease("alive"),
        rows.claim("alive", memory_mb=2048),
        rows.reservation(),
        rows.reserved_share(position=0, kept=True, lease_id="alive"),
        rows.reserved_share(position=1, kept=True, lease_id="gone"),
    )
    with database.reading() as connection:
        assert orphans.shares(connection) == {"gone": ["reservation-1"]}
    for lease_id in ("gone", "alive"):
        database.change(lambda connection, this=lease_id: orphans.free_shares(connection, this))
    with database.read() as session:
        query = select(ReservedShareRow.lease_id, ReservedShareRow.kept)
        found = session.execute(query.order_by(ReservedShareRow.position)).all()
        assert [tuple(one) for one in found] == [("alive", True), (None, False)]
        assert recount.miscounted(session.connection()) == []


def test_a_released_lease_that_still_has_something_is_stored_with_the_others(
    database: Database,
) -> None:
    released = {"status": "RELEASED", "released_at": rows.second(1)}
    add(
        database,
        rows.lease("alive"),
        rows.lease("over", **released),
        rows.lease("bound", bound_host="compute1", **released),
    )
    with database.reading() as connection:
        assert {one.id for one in orphans.stored(connection)} == {"alive", "bound"}
        assert set(orphans.named(connection, {"over", "never-was"})) == {"over"}
