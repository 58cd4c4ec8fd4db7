# SPDX-License-Identifier: Apache-2.0
"""`gsaas-manage` prepares every database that GSaaS supports, and says plainly what is in its way."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy
from oslo_utils import timeutils

from gsaas.checkup import claims
from gsaas.cli import manage
from gsaas.db import migration, recount
from gsaas.db.database import Database
from gsaas.db.models import GpuRow, LeaseEventRow, LeaseRow, ProjectRow
from tests.support import rows

pytestmark = pytest.mark.services


@pytest.fixture
def run(tmp_path: Path, database_url: str, capsys: pytest.CaptureFixture[str]):
    """Run a command on an empty database: (exit status, what it printed, what it complained)."""
    path = tmp_path / "gsaas.conf"
    path.write_text(f"[database]\nconnection = {database_url}\n")

    def call(*words: str) -> tuple[int, str, str]:
        status = manage.main(["--config-file", str(path), *words])
        printed = capsys.readouterr()
        return status, printed.out.strip(), printed.err.strip()

    return call


def test_an_operator_checks_upgrades_and_checks_again(run):
    assert run("db", "check") == (
        1,
        "",
        "gsaas-manage: the database has no tables of GSaaS yet; run: gsaas-manage db upgrade",
    )
    assert run("db", "version") == (0, "none", "")
    head = migration.head()
    assert run("db", "upgrade") == (
        0,
        f"the database is now at revision {head}; it was at none",
        "",
    )
    assert run("db", "version") == (0, head, "")
    assert run("db", "check") == (
        0,
        f"the database is at revision {head}, as this release needs it",
        "",
    )


def test_upgrading_again_does_nothing(run):
    run("db", "upgrade")
    assert run("db", "upgrade") == (
        0,
        f"nothing to do: the database is at revision {migration.head()}",
        "",
    )


def test_a_newer_gsaas_has_the_last_word(run, database_url: str):
    run("db", "upgrade")
    database = Database.open(database_url)
    with database.write() as session:
        session.execute(sqlalchemy.text("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    complaint = (
        "gsaas-manage: the database is at revision 9999, which this release does not know: "
        "a newer GSaaS has upgraded it"
    )
    assert run("db", "check") == (1, "", complaint)
    assert run("db", "upgrade") == (1, "", complaint)


@pytest.fixture
def leases(run, database_url: str) -> Iterator[Callable[[], set[str]]]:
    """A database with seven leases, of which five were released; return a function that lists those that are left."""
    run("db", "upgrade")
    now = timeutils.utcnow()
    database = Database.open(database_url)
    with database.write() as session:
        for days in (1, 30, 100, 101, 400):
            ended = now - datetime.timedelta(days=days)
            moments = {"created_at": ended, "released_at": ended}
            session.add(rows.lease(f"{days}", status="RELEASED", **moments))
        long_ago = now - datetime.timedelta(days=1000)
        session.add(rows.lease("alive", created_at=long_ago))
        session.add(
            rows.lease("failed", status="ERROR", fault_message="it failed", released_at=long_ago)
        )
        session.flush()
        for lease_id in ("1", "400", "alive"):
            session.add(LeaseEventRow(lease_id=lease_id, event="claim", status="CLAIMED"))

    def left() -> set[str]:
        with database.read() as session:
            return set(session.scalars(sqlalchemy.select(LeaseRow.id)))

    yield left
    database.close()


def test_a_purge_deletes_leases_released_longer_ago_than_configured(run, leases):
    status, printed, _ = run("db", "purge", "--dry-run")
    assert (status, printed[:50]) == (0, "would delete 3 leases that were released before 20")
    assert len(leases()) == 7
    status, printed, _ = run("db", "purge", "--batch", "2")
    assert (status, printed[:46]) == (0, "deleted 3 leases that were released before 202")
    assert leases() == {"1", "30", "alive", "failed"}
    assert run("db", "purge")[1].startswith("deleted 0 leases")


def test_a_purge_says_in_json_what_it_did(run, leases):
    status, printed, _ = run("db", "purge", "--older-than", "20", "--format", "json")
    told = json.loads(printed)
    assert (status, told["leases"], told["dry_run"]) == (0, 4, False)
    before = datetime.datetime.fromisoformat(told["released_before"])
    assert datetime.datetime.now(datetime.UTC) - before >= datetime.timedelta(days=20)
    assert leases() == {"1", "alive", "failed"}


def test_what_is_counted_of_a_gpu_is_counted_again(run, database_url: str):
    run("db", "upgrade")
    database = Database.open(database_url)
    with database.write() as session:
        session.add(rows.host("gpu1"))
        session.add(rows.gpu("GPU-right", used_mb=2048, leases=1, reserved_mb=1024))
        session.add(rows.gpu("GPU-used", device_index=1, used_mb=4096, leases=2))
        session.add(rows.gpu("GPU-kept", device_index=2, reserved_mb=512))
        session.add_all(rows.lease(name, status="CLAIMED") for name in ("lease-1", "lease-2"))
        session.add(rows.reservation())
        session.flush()
        held = {"used_mb": 40960, "leases": 1, "exclusive_lease_id": "lease-1"}
        session.add(rows.gpu("GPU-held", device_index=3, memory_mb=40960, **held))
        session.add(rows.gpu("GPU-other", device_index=4, memory_mb=40960, **held))
        session.add(rows.claim("lease-2", "GPU-other", position=0, memory_mb=40960))
        session.add(rows.claim("lease-1", "GPU-right", position=0, memory_mb=2048))
        session.add(rows.claim("lease-1", "GPU-used", position=1, memory_mb=1024))
        session.add(rows.reserved_share(gpu_uuid="GPU-right", memory_mb=1024, kept=True))
        session.add(rows.reserved_share(gpu_uuid="GPU-kept", position=1, memory_mb=512))
    with database.reading() as connection:
        assert claims.compare(recount.miscounted(connection)).level == "fail"
    status, printed, _ = run("db", "recount")
    assert (status, printed.splitlines()) == (
        0,
        [
            "corrected: GPU-held of gpu1: 40960 MiB counted, 0 claimed; 1 leases counted, 0 with claims",
            "corrected: GPU-kept of gpu1: 512 MiB counted, 0 kept for reservations",
            "corrected: GPU-other of gpu1: held exclusively by a lease without a claim on it",
            "corrected: GPU-used of gpu1: 4096 MiB counted, 1024 claimed; 2 leases counted, 1 with claims",
        ],
    )
    with database.read() as session:
        found = session.execute(
            sqlalchemy.select(
                *(GpuRow.uuid, GpuRow.used_mb, GpuRow.leases, GpuRow.reserved_mb),
                GpuRow.exclusive_lease_id,
            ).order_by(GpuRow.uuid)
        ).all()
        assert claims.compare(recount.miscounted(session.connection())).level == "ok"
    assert [tuple(row) for row in found] == [
        ("GPU-held", 0, 0, 0, None),
        ("GPU-kept", 0, 0, 0, None),
        ("GPU-other", 40960, 1, 0, None),
        ("GPU-right", 2048, 1, 1024, None),
        ("GPU-used", 1024, 1, 0, None),
    ]
    assert run("db", "recount")[1].startswith("nothing to do")
    database.close()


@pytest.mark.parametrize("words", [["--older-than", "-1"], ["--batch", "0"], ["--batch", "many"]])
def test_a_purge_refuses_numbers_that_make_no_sense(run, words: list[str]):
    with pytest.raises(SystemExit) as ended:
        run("db", "purge", *words)
    assert ended.value.code == 2


def test_a_purge_deletes_the_rows_of_projects_without_leases(run, leases, database_url: str):
    database = Database.open(database_url)
    with database.write() as session:
        session.add_all(ProjectRow(id=name) for name in ("project-1", "gone", "gone too"))
    assert run("db", "purge", "--dry-run")[0] == 0
    assert run("db", "purge", "--batch", "1")[0] == 0
    with database.read() as session:
        assert list(session.scalars(sqlalchemy.select(ProjectRow.id))) == ["project-1"]
    database.close()
