# SPDX-License-Identifier: Apache-2.0
"""How many rows MariaDB looks at for what each report and each launch asks, however many leases the cloud has."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Connection, orm

from bench.fleets import rows
from gsaas.db import hosts, leases, readings
from gsaas.db.database import Database
from tests.support.rows import new_lease, second

pytestmark = [
    pytest.mark.services,
    pytest.mark.parametrize("server", ["mariadb"], indirect=True),
]

HOSTS, GPUS, LEASES = 100, 4, 1000
CHANGED = 5000
HANDLERS = ("Handler_read_key", "Handler_read_next", "Handler_read_rnd_next", "Handler_read_first")


@pytest.fixture
def cloud(database: Database) -> Database:
    rows.fill(database, HOSTS, GPUS, LEASES)
    return database


def examined(database: Database, ask: Callable[[Connection], object]) -> tuple[object, int]:
    """Return the answer, and how many rows the server looked at for it.

    It is kept from the plans that it does not always choose: with 2,000 leases in a fleet it chose to look at each.
    """
    with database.reading() as connection:
        connection.exec_driver_sql("SET optimizer_switch = 'semijoin=off,materialization=off'")
        before = _read(connection)
        answer = ask(connection)
        looked_at = _read(connection) - before
        connection.exec_driver_sql("SET optimizer_switch = DEFAULT")
        return answer, looked_at


def _read(connection: Connection) -> int:
    status = dict(connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'").all())
    return sum(int(status[name]) for name in HANDLERS)


def test_the_leases_of_one_gpu_host_are_found_without_those_of_others(cloud):
    found, looked_at = examined(cloud, lambda connection: leases.on_gpus_of(connection, "gpu00007"))

    assert len(found) == LEASES / HOSTS
    assert {claim.gpu.host_name for lease in found for claim in lease.claims} == {"gpu00007"}
    assert found == sorted(found, key=lambda lease: (lease.created_at, lease.id))
    assert looked_at < LEASES / 2


def test_the_cgpus_of_one_gpu_host_are_found_without_those_of_others(cloud):
    found, looked_at = examined(
        cloud, lambda connection: readings.claimed_on(connection, "gpu00007")
    )

    assert len(found) == LEASES / HOSTS
    assert looked_at < LEASES / 2


def test_the_host_with_an_address_is_found_without_looking_at_others(cloud):
    def ask(connection: Connection) -> list[str]:
        with orm.Session(connection) as session:
            address = session.get_one(hosts.HostRow, "gpu00007").gpu_address
            return hosts.with_gpu_address(session, address)

    found, looked_at = examined(cloud, ask)

    assert found == ["gpu00007"]
    assert looked_at < HOSTS / 2


@pytest.fixture
def history(database: Database) -> Database:
    """Leases of two projects that have all changed, a little after one another."""
    with database.writing() as connection:
        made = [
            new_lease(
                f"{number:08d}-0000-4000-8000-000000000000",
                project_id="big" if number % 50 else "small",
                status="RELEASED",
                released_at=second(number),
                created_at=second(CHANGED - number),
                updated_at=second(number),
            )
            for number in range(CHANGED)
        ]
        leases.insert_all(connection, made)
    return database


@pytest.mark.parametrize("project", [None, "big", "small"])
def test_a_page_of_changes_costs_as_much_as_it_has_rows(history, project):
    """Whichever page it is, and however many leases have changed: of all projects, or of one."""
    page, after, seen, costs = 20, None, [], []
    for _ in range(4):
        found, looked_at = examined(
            history,
            lambda connection, after=after: leases.page(
                connection,
                project_id=project,
                limit=page,
                changed_since=second(0),
                sort=[("updated_at", False)],
                after=after,
            ),
        )
        seen += [lease.id for lease in found]
        costs.append(looked_at)
        after = (found[-1].updated_at, found[-1].id)
    assert seen == sorted(seen)
    assert len(set(seen)) == 4 * page
    assert max(costs) < CHANGED / 10, "a project's few leases are found among those of others"
