# SPDX-License-Identifier: Apache-2.0
"""`gsaas-status upgrade check`, the program, says on each database whether this release can run there."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from oslo_utils import timeutils

from gsaas import version
from gsaas.db import endpoints, migration, processes
from gsaas.db.database import Database
from gsaas.db.models import ProcessRow
from tests.support import rows

pytestmark = pytest.mark.services

SUCCESS, WARNING, FAILURE = 0, 1, 2
Check = Callable[..., tuple[int, dict[str, dict[str, Any]]]]
SETTINGS = """
[oslo_policy]
policy_file = {folder}/policy.yaml

[bus]
secrets = secret

[database]
connection = {url}
"""


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Run the program with a configuration: its exit status, and its results by name."""

    def check(url: str, more: str = "") -> tuple[int, dict[str, dict[str, Any]]]:
        settings = tmp_path / "gsaas.conf"
        settings.write_text(SETTINGS.format(folder=tmp_path, url=url) + more)
        done = run("--config-file", str(settings), "upgrade", "check", "--json")
        results = json.loads(done.stdout)["checks"] if done.returncode != 255 else []
        return done.returncode, {result["check"]: result for result in results}

    return check


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gsaas.cli.status", *words], capture_output=True, text=True
    )


def codes(results: dict[str, dict[str, Any]]) -> dict[str, int]:
    return {name: result["result"] for name, result in results.items() if result["result"]}


def test_an_operator_upgrades_the_database_and_checks_again(check: Check, database_url: str):
    migration.upgrade(database_url, "0001")
    status, results = check(database_url)
    assert status == FAILURE
    assert codes(results)["Database"] == FAILURE
    assert "-> gsaas-manage db upgrade" in results["Database"]["details"]
    assert codes(results)["Leases"] == WARNING
    migration.upgrade(database_url)
    status, results = check(database_url)
    assert (status, codes(results)) == (SUCCESS, {})


def test_a_database_of_a_newer_release_is_a_failure(check: Check, database_url: str):
    migration.upgrade(database_url)
    execute(database_url, "UPDATE alembic_version SET version_num = '9999'")
    status, results = check(database_url)
    assert status == FAILURE
    assert "which this release does not know" in results["Database"]["details"]


def execute(url: str, *statements: str) -> None:
    """Run *statements* on a connection of their own."""
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    """A database of its own, with all tables."""
    url = f"sqlite:///{tmp_path}/gsaas.sqlite"
    migration.upgrade(url)
    return url


def test_a_lease_in_a_state_that_this_release_does_not_know_is_a_failure(check: Check, sqlite: str):
    columns = (
        "id, project_id, user_id, name, status, count, mode, memory_mb, locality, requirements, remoting, "
        "avoided_hosts, has_server, server_request, created_at, updated_at, priority"
    )
    row = (
        "'{}', 'blue', 'u', 'n', '{}', 1, 'shared', 1024, 'any', '{{}}', '{}', '[]', 1, '{{}}', "
        "'2026-01-01', '2026-01-01', 0"
    )
    execute(
        sqlite,
        "PRAGMA ignore_check_constraints = ON",
        f"INSERT INTO leases ({columns}) VALUES ({row.format('1', 'SUSPENDED', 'rcuda')})",
        f"INSERT INTO leases ({columns}) VALUES ({row.format('2', 'RELEASING', 'warp')})",
    )
    status, results = check(sqlite)
    assert (status, codes(results)) == (FAILURE, {"Leases": FAILURE})
    said = results["Leases"]["details"]
    assert "a status that this release does not know: SUSPENDED (1)" in said
    assert "a remoting driver that this release does not know: warp (1)" in said


def test_what_a_changed_default_would_refuse_is_a_warning(check: Check, sqlite: str):
    database = Database.open(sqlite)
    with database.write() as session:
        session.add(rows.host())
        session.flush()
        session.add(rows.gpu())
        session.add(rows.lease(has_server=False, status="ACTIVE", access="direct", count=16))
        session.flush()
        for position in range(16):
            session.add(rows.claim(position=position, memory_mb=1))
    database.close()
    status, results = check(sqlite)
    assert (status, codes(results)) == (WARNING, {"Changed defaults": WARNING})
    said = results["Changed defaults"]["details"]
    assert "1 projects have 16 cGPUs, the default of [quotas]cgpus, or more" in said
    assert "1 leases use real addresses" in said


def test_processes_of_other_releases_are_named(check: Check, sqlite: str):
    database = Database.open(sqlite)
    now = timeutils.utcnow()
    with database.write() as session:
        endpoints.register(session, "compute1", {"bindings": {}, "release": "0.9.0"})
        endpoints.register(session, "compute2", {"bindings": {}, "release": "99.0"})
        endpoints.register(session, "compute3", {"bindings": {}})
        endpoints.register(session, "compute4", {"bindings": {}, "release": version.RELEASE})
        processes.record(session, "gsaas-api", "controller1")
        old = ProcessRow(program="gsaas-engine", host="controller2", release="0.9.0", seen_at=now)
        gone = now - datetime.timedelta(hours=1)
        ended = ProcessRow(program="gsaas-api", host="gone", release="0.8.0", seen_at=gone)
        session.add_all([old, ended])
    database.close()
    status, results = check(sqlite)
    assert status == FAILURE
    agents = results["Releases of agents"]
    assert agents["result"] == FAILURE
    assert "gsaas-rodvr on compute1 (0.9.0)" in agents["details"]
    assert "gsaas-rodvr on compute2 (99.0)" in agents["details"]
    assert "gsaas-rodvr on compute3" in agents["details"]
    assert "compute4" not in agents["details"]
    controllers = results["Releases of controllers"]
    assert controllers["result"] == WARNING
    assert "gsaas-engine on controller2 (0.9.0)" in controllers["details"]
    assert "gone" not in controllers["details"]


def test_deprecated_and_unknown_options_and_rules_are_warnings(
    check: Check, sqlite: str, tmp_path: Path
):
    rules = 'mine: "role:x"\n"gsaas:leases:lisst": "rule:mine"\n'
    (tmp_path / "policy.yaml").write_text(rules)
    status, results = check(sqlite, "[rodvr]\nfarewell = 3\n[queue]\nbackfil = true\n")
    assert status == WARNING
    assert codes(results) == {"Configuration files": WARNING, "Access rules": WARNING}
    said = results["Configuration files"]["details"]
    assert "write [rodvr]grace instead" in said
    assert "do you mean [queue]backfill?" in said
    assert "write gsaas:leases:list instead" in results["Access rules"]["details"]
    assert "mine" not in results["Access rules"]["details"]


def test_access_rules_in_json_are_a_failure(check: Check, sqlite: str, tmp_path: Path):
    (tmp_path / "policy.yaml").write_text("{}")
    status, results = check(sqlite)
    assert (status, codes(results)) == (FAILURE, {"Format of the access rules": FAILURE})


def test_without_a_database_the_other_checks_are_made(check: Check, tmp_path: Path):
    status, results = check(f"sqlite:///{tmp_path}/missing/gsaas.sqlite")
    assert status == FAILURE
    assert "cannot connect to" in results["Database"]["details"]
    assert results["Configuration files"]["result"] == SUCCESS


def test_people_get_a_table(check: Check, sqlite: str, tmp_path: Path):
    check(sqlite)
    done = run("--config-file", str(tmp_path / "gsaas.conf"), "upgrade", "check")
    assert done.returncode == SUCCESS
    assert "| Upgrade Check Results" in done.stdout
    assert "| Check: Releases of agents" in done.stdout


def test_a_configuration_that_cannot_be_used_is_unexpected(check: Check, sqlite: str):
    assert check(sqlite, "[queue]\nlong_polls = many\n")[0] == 255
