# SPDX-License-Identifier: Apache-2.0
"""Statements that go to SQLite's driver directly do what they do by way of SQLAlchemy."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_db import exception as db_exception
from sqlalchemy import Connection, bindparam, event, insert, select, update

from gsaas.db import models
from gsaas.db.database import Database
from gsaas.db.prepared import RUNNER, Prepared
from tests.support import sqlite

HOSTS, EVENTS = models.HostRow.__table__, models.LeaseEventRow.__table__
INSERT = Prepared(insert(HOSTS))
FIND = Prepared(select(HOSTS).where(HOSTS.c.name == bindparam("this")))
AGE = Prepared(
    update(HOSTS).where(HOSTS.c.gpu_address == bindparam("at")).values(monitor_interval=2.5)
)
ROW = {
    "name": "gpu-1",
    "gpu_address": "10.0.0.1",
    "disabled": True,
    "disabled_reason": 'a fan; "loud"',
    "forgotten": False,
    "monitor_seen_at": datetime.datetime(2026, 2, 28, 23, 59, 59, 999999),
    "monitor_report": {"gpus": [{"mib": 1.5, "name": "Ünï"}, None]},
    "monitor_interval": 10.0,
    "wanted_serial": 2**40,
    "monitor_problems": [],
}


@pytest.fixture(params=["SQLAlchemy", "the driver"])
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    database = Database.open(
        "sqlite://" if request.param == "SQLAlchemy" else f"sqlite:///{tmp_path}/gsaas.db"
    )
    models.Base.metadata.create_all(database.engine)
    with database.reading() as connection:
        assert (RUNNER in connection.get_execution_options()) == (request.param == "the driver")
    yield database
    database.close()


def found(connection: Connection, name: str) -> list[dict[str, Any]]:
    return [
        dict(zip(HOSTS.columns.keys(), row, strict=True))
        for row in FIND.rows(connection, this=name)
    ]


def test_what_is_written_is_what_a_session_reads(door):
    with door.writing() as connection:
        assert INSERT.run(connection, **ROW) == 1
    with door.read() as session:
        host = session.get(models.HostRow, "gpu-1")
        assert {name: getattr(host, name) for name in ROW} == ROW


def test_what_a_session_writes_is_what_is_read(door):
    with door.write() as session:
        session.add(models.HostRow(**ROW))
    with door.reading() as connection:
        [host] = found(connection, "gpu-1")
        assert found(connection, "gpu-2") == []
    assert {name: host[name] for name in ROW} == ROW


def test_what_is_left_out_of_a_row_is_null(door):
    with door.writing() as connection:
        INSERT.run_all(connection, [ROW, {**ROW, "name": "gpu-2", "monitor_report": None}])
        INSERT.run(
            connection,
            name="gpu-3",
            disabled=False,
            forgotten=False,
            wanted_serial=0,
            monitor_problems=["no driver"],
        )
    with door.reading() as connection:
        assert found(connection, "gpu-2")[0]["monitor_report"] is None
        [host] = found(connection, "gpu-3")
    assert (host["monitor_report"], host["monitor_problems"]) == (None, ["no driver"])


def test_it_says_how_many_rows_were_changed(door):
    with door.writing() as connection:
        INSERT.run_all(connection, [{**ROW, "name": name} for name in ("a", "b")])
        assert AGE.run(connection, at=ROW["gpu_address"]) == 2
        assert AGE.run(connection, at="10.0.0.2") == 0
        assert found(connection, "a")[0]["monitor_interval"] == 2.5


def test_what_the_database_refuses_undoes_the_transaction(door):
    with pytest.raises(db_exception.DBError, match="UNIQUE"), door.writing() as connection:
        INSERT.run(connection, **ROW)
        INSERT.run(connection, **ROW)
    with door.reading() as connection:
        assert found(connection, "gpu-1") == []
    with door.writing() as connection:
        assert INSERT.run(connection, **ROW) == 1


def test_the_driver_is_not_handed_a_statement_without_all_its_values(tmp_path):
    database = Database.open(f"sqlite:///{tmp_path}/gsaas.db")
    models.Base.metadata.create_all(database.engine)
    with database.writing() as connection:
        with pytest.raises(TypeError, match="no value for this"):
            FIND.rows(connection)
        with pytest.raises(TypeError, match="no value for at of INSERT INTO lease_events"):
            Prepared(insert(EVENTS)).run(connection, lease_id="a", event="claim", status="CLAIMED")
    database.close()


def test_who_listens_hears_every_statement():
    """Tests do, on databases in memory."""
    database = sqlite.in_memory(sqlite.tables())
    heard = []
    event.listen(database.engine, "before_cursor_execute", lambda *call: heard.append(call[2]))
    with database.reading() as connection:
        FIND.rows(connection, this="a")
    database.close()
    assert heard[-1].startswith("SELECT hosts.name")
