# SPDX-License-Identifier: Apache-2.0
"""Leases without a VM that nothing uses are listed: after a restored backup, they may be over."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from gsaas.checkup import unused
from gsaas.checkup.findings import Level
from gsaas.db import leases, models, readings
from gsaas.db.database import Database
from gsaas.db.readings import CgpuReading, PathReading
from gsaas.objects.lifecycle import Status
from tests.support import rows, sqlite

NOW = datetime.datetime(2026, 6, 1, 12)
ACTIVE = {"status": Status.ACTIVE, "has_server": False, "policy": "first-fit"}


def ago(**time: float) -> datetime.datetime:
    return NOW - datetime.timedelta(**time)


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    database = sqlite.in_file(
        tmp_path / "gsaas.db",
        sqlite.image(lambda made: models.Base.metadata.create_all(made.engine)),
    )
    monkeypatch.setattr("gsaas.db.clock.now", lambda _connection: NOW)
    yield database
    database.close()


def listed(database: Database) -> list[str]:
    with database.reading() as connection:
        (finding,) = unused.check(connection)
    assert finding.level == (Level.WARN if "nothing uses" in finding.said else Level.OK)
    return [word for word in finding.said.split() if word.startswith("lease-")]


def test_leases_that_nothing_uses_are_listed_and_no_others(database: Database):
    old = {"claimed_at": ago(days=2), "created_at": ago(days=2)}
    with database.writing() as connection:
        for lease_id, columns in {
            "lease-unknown": {},  # of which there are no readings
            "lease-path": {},
            "lease-cgpu": {},
            "lease-before": {},
            "lease-new": {"claimed_at": ago(minutes=5)},
            "lease-keepalive": {"keepalive": 60, "kept_until": ago(minutes=-1)},
            "lease-vm": {"has_server": True, "server_id": "vm"},
            "lease-over": {"status": Status.RELEASED, "released_at": ago(hours=3)},
        }.items():
            leases.insert(connection, rows.new_lease(lease_id, **{**ACTIVE, **old, **columns}))
        readings.add_cgpus(connection, [CgpuReading("lease-before", 0, 50.0, 1)], ago(hours=2))
        readings.add_cgpus(connection, [CgpuReading("lease-cgpu", 0, 50.0, 1)], ago(minutes=9))
        readings.add_paths(connection, [PathReading("lease-path", 9999, 0, 1, 0)], ago(minutes=9))
    assert sorted(listed(database)) == ["lease-before", "lease-unknown"]


def test_it_is_said_whose_they_are_since_when_and_what_to_do():
    one = unused.Unused(rows.new_lease("lease-1", **ACTIVE), ago(hours=3))
    finding = unused.report([one] * 25)
    assert "lease-1 of project project-1 since 2026-06-01 09:00" in finding.said
    assert finding.said.endswith("and 5 more")
    assert "gsaas -t -id=ID" in finding.todo


def test_without_any_there_is_nothing_to_do():
    assert unused.report([]).level is Level.OK
