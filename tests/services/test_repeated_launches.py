# SPDX-License-Identifier: Apache-2.0
"""Requests with one Idempotency-Key that two processes answer at once make one lease, on every database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
import sqlalchemy
from oslo_utils import timeutils

from gsaas.cli import manage
from gsaas.db import models, request_keys
from gsaas.db.database import Database
from tests.api.world import World, fill
from tests.support import rows

pytestmark = pytest.mark.services

AT_ONCE = 8
ROUNDS = 10
BODY = {"lease": {"cgpus": {"count": 1}, "server": None}}


@pytest.mark.parametrize("gpus", [AT_ONCE, 1], ids=["enough GPUs", "one GPU"])
def test_requests_at_once_with_one_key_make_one_lease(
    database: Database, tmp_path: Path, gpus: int
):
    """With one GPU, a request that is too late is not told that there is none: it gets the lease of the first one."""
    fill(database, hosts=1, gpus_per_host=gpus)
    apis = []
    for name in ("first", "second"):
        (folder := tmp_path / name).mkdir()
        apis.append(World.build(folder, database=database))
    start = Barrier(AT_ONCE)

    def post(number: int, key: str):
        start.wait()
        return apis[number % 2].call(
            "member", "POST", "/v1/leases", BODY, headers={"Idempotency-Key": key}
        )

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for turn in range(ROUNDS):
            key = f"key-{turn}"
            answers = list(pool.map(post, range(AT_ONCE), [key] * AT_ONCE))
            assert [answer.status_code for answer in answers] == [201] * AT_ONCE
            (lease_id,) = {answer.json["lease"]["id"] for answer in answers}
            with database.reading() as connection:
                assert (
                    len(connection.execute(sqlalchemy.select(models.LeaseRow.id)).all()) == turn + 1
                )
                used = connection.scalar(
                    sqlalchemy.select(sqlalchemy.func.sum(models.GpuRow.leases))
                )
            assert used == 1
            apis[0].call("member", "DELETE", f"/v1/leases/{lease_id}")


def test_a_purge_forgets_the_keys_of_yesterday_and_changes_nothing_else(
    database: Database, tmp_path: Path
):
    now = timeutils.utcnow()
    old, new = now - request_keys.KEPT * 1.01, now - request_keys.KEPT * 0.9
    with database.write() as session:
        for lease_id, at in (("old", old), ("new", new)):
            session.add(
                rows.lease(
                    lease_id,
                    created_at=at,
                    updated_at=at,
                    request_key=lease_id * 10,
                    request_digest="d",
                )
            )
    conf = tmp_path / "gsaas.conf"
    url = database.engine.url.render_as_string(hide_password=False)
    conf.write_text(f"[database]\nconnection = {url}\n")
    assert manage.main(["--config-file", str(conf), "db", "purge"]) == 0
    with database.read() as session:
        found = {
            lease.id: (lease.request_key, lease.request_digest, lease.updated_at)
            for lease in session.query(models.LeaseRow)
        }
    assert found == {"old": (None, None, old), "new": ("new" * 10, "d", new)}
