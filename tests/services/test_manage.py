# SPDX-License-Identifier: Apache-2.0
"""`gsaas-manage` prepares every database that GSaaS supports, and says plainly what is in its way."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy

from gsaas.cli import manage
from gsaas.db import migration
from gsaas.db.database import Database

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
