# SPDX-License-Identifier: Apache-2.0
"""Leases are read, listed and moved through one module, which keeps their story."""

from __future__ import annotations

import datetime
import itertools

import pytest

from gsaas import exceptions
from gsaas.db import clock, leases
from gsaas.db.database import Database
from gsaas.objects.access import Access
from gsaas.objects.lifecycle import Event, Status
from tests.support import rows


def add(database: Database, *objects: object) -> None:
    with database.write() as session:
        for row in objects:
            session.add(row)
            session.flush()


def ids(database: Database, **filters: object) -> list[str]:
    with database.read() as session:
        return [
            lease.id for lease in leases.page(session.connection(), **{"limit": 100, **filters})
        ]


# Reading


def test_a_lease_is_found_by_its_id(database: Database):
    add(database, rows.lease(name="training"))
    with database.read() as session:
        assert leases.get(session.connection(), "lease-1").name == "training"
        assert (
            leases.get(session.connection(), "lease-1", project_id="project-1").name == "training"
        )


def test_another_projects_lease_is_as_unknown_as_none(database: Database):
    add(database, rows.lease())
    with database.read() as session:
        with pytest.raises(exceptions.NotFound) as theirs:
            leases.get(session.connection(), "lease-1", project_id="project-2")
        with pytest.raises(exceptions.NotFound) as nobodys:
            leases.get(session.connection(), "lease-2", project_id="project-2")
    assert str(theirs.value) == "there is no lease lease-1"
    assert str(nobodys.value) == "there is no lease lease-2"


# Listing


def test_pages_are_cut_between_leases_of_the_same_moment(database: Database):
    """The order is that of creation, then of ids, and no lease is skipped or shown twice."""
    moments = {"d": 1, "b": 2, "c": 2, "a": 2, "e": 3}
    add(database, *(rows.lease(k, created_at=rows.second(v)) for k, v in moments.items()))
    seen, marker = [], None
    while page := ids(database, limit=2, marker=marker):
        assert len(page) <= 2
        seen += page
        marker = page[-1]
    assert seen == ["d", "a", "b", "c", "e"]


def test_released_leases_are_listed_only_when_asked_for(database: Database):
    fault = {"fault_message": "the image is gone"}
    add(
        database,
        rows.lease("new", created_at=rows.second(1)),
        rows.lease(
            "past", created_at=rows.second(2), status="RELEASED", released_at=rows.second(3)
        ),
        rows.lease("failed", created_at=rows.second(4), status="ERROR", **fault),
    )
    assert ids(database) == ["new", "failed"]
    assert ids(database, status="RELEASED") == ["past"]
    assert ids(database, status="ERROR") == ["failed"]


def test_filters_narrow_the_list_and_add_up(database: Database):
    add(
        database,
        rows.lease("1", created_at=rows.second(1), name="a", server_id="s1"),
        rows.lease("2", created_at=rows.second(2), name="a", project_id="project-2"),
        rows.lease("3", created_at=rows.second(3), name="b"),
    )
    assert ids(database, name="a") == ["1", "2"]
    assert ids(database, name="a", project_id="project-1") == ["1"]
    assert ids(database, server_id="s1") == ["1"]
    assert ids(database, server_id="s1", name="b") == []


def test_a_released_lease_still_serves_as_a_marker(database: Database):
    """It may have been released between two pages."""
    add(
        database,
        rows.lease("1", created_at=rows.second(1), status="RELEASED", released_at=rows.second(9)),
        rows.lease("2", created_at=rows.second(2)),
    )
    assert ids(database, marker="1") == ["2"]


@pytest.mark.parametrize("marker", ["nobodys", "theirs"])
def test_an_unknown_marker_is_a_bad_request(database: Database, marker: str):
    add(database, rows.lease("theirs", project_id="project-2"))
    with pytest.raises(exceptions.BadRequest, match=f"the marker {marker} is not a lease"):
        ids(database, marker=marker, project_id="project-1")


def walk(database: Database, sort: list[tuple[str, bool]], size: int, **filters) -> list[str]:
    """Return the ids of all pages of *size* leases."""
    seen, marker = [], None
    while page := ids(database, limit=size, marker=marker, sort=sort, **filters):
        seen += page
        marker = page[-1]
    return seen


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("descending", list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize(
    "keys", [("name", "priority"), ("server_id", "name"), ("memory_mb", "wait_until"), ("id",)]
)
def test_pages_in_any_order_contain_each_lease_once_in_the_order_of_python(
    database: Database, keys: tuple[str, ...], descending: tuple[bool, bool], size: int
):
    """Some leases are equal in all keys but the id, and some have no value in one."""
    exclusive = {"mode": "exclusive", "memory_mb": None}
    columns = [
        {"name": "b", "priority": 1},
        {"name": "a", "priority": 2, "server_id": "s1", "wait_until": rows.second(5)},
        {"name": "a", "priority": 2, "wait_until": rows.second(4)},
        {"name": "a", "priority": -1, **exclusive},
        {"name": "B", "priority": 1, **exclusive},
        {"name": "b", "priority": 1, "server_id": "s0", "memory_mb": 512},
    ]
    made = [rows.lease(str(number), **each) for number, each in enumerate(columns)]
    values = {row.id: [getattr(row, key) for key in keys] for row in made}
    add(database, *made)
    expected = sorted(values, reverse=descending[len(keys) - 1])  # the id breaks ties
    for position in reversed(range(len(keys))):

        def value(lease_id: str, position: int = position):
            return values[lease_id][position]

        with_value = [each for each in expected if value(each) is not None]
        without = [each for each in expected if value(each) is None]
        # sort() is stable also in reverse order.
        expected = sorted(with_value, key=value, reverse=descending[position]) + without
    sort = list(zip(keys, descending, strict=False))
    assert walk(database, sort, size) == expected


def test_leases_that_changed_since_a_moment_are_listed_with_released_ones(database: Database):
    add(
        database,
        rows.lease("before", created_at=rows.second(1), updated_at=rows.second(1)),
        rows.lease("at", created_at=rows.second(2), updated_at=rows.second(5)),
        rows.lease(
            "over",
            created_at=rows.second(3),
            updated_at=rows.second(9),
            status="RELEASED",
            released_at=rows.second(9),
        ),
    )
    assert ids(database, changed_since=rows.second(5)) == ["at", "over"]
    assert ids(database, changed_since=rows.second(5), status="CLAIMED") == ["at"]
    assert ids(database, changed_since=rows.second(10)) == []
    assert walk(database, [("updated_at", True)], 1, changed_since=rows.second(5)) == ["over", "at"]


# Moving


def test_a_transition_moves_the_lease_and_adds_to_its_story(database: Database):
    add(database, rows.lease())
    with database.write() as session:
        lease = leases.transition(
            session.connection(), "lease-1", Event.BOOT, "the cloud has made it", server_id="s1"
        )
        assert (lease.status, lease.server_id) == ("BOOTING", "s1")
    with database.write() as session:
        leases.transition(session.connection(), "lease-1", Event.ACTIVATE)
    with database.read() as session:
        assert leases.get(session.connection(), "lease-1").status == "ACTIVE"
        assert [
            (e.event, e.status, e.detail) for e in leases.events(session.connection(), "lease-1")
        ] == [
            ("boot", "BOOTING", "the cloud has made it"),
            ("activate", "ACTIVE", None),
        ]


def test_an_illegal_transition_tells_the_story_and_changes_nothing(database: Database):
    add(database, rows.lease())
    with database.write() as session:
        leases.transition(session.connection(), "lease-1", Event.BOOT)
    with pytest.raises(exceptions.IllegalTransition) as error, database.write() as session:
        leases.transition(session.connection(), "lease-1", Event.FINISH, bound_host="cpu1")
    assert error.value.facts["events"] == "boot -> BOOTING"
    with database.read() as session:
        lease = leases.get(session.connection(), "lease-1")
        assert (lease.status, lease.bound_host) == ("BOOTING", None)
        assert len(leases.events(session.connection(), "lease-1")) == 1


def test_a_finished_lease_has_a_time_of_release(database: Database):
    add(database, rows.lease("at-once", status="RELEASING"))
    add(database, rows.lease("before", status="RELEASING", released_at=rows.second(7)))
    with database.write() as session:
        assert (
            leases.transition(session.connection(), "at-once", Event.FINISH).released_at is not None
        )
        assert leases.transition(
            session.connection(), "before", Event.FINISH
        ).released_at == rows.second(7)


def test_an_update_sets_columns_and_tells_no_story(database: Database):
    add(database, rows.lease())
    with database.write() as session:
        leases.update(session.connection(), "lease-1", server_host="cpu1", avoided_hosts=["gpu1"])
    with database.read() as session:
        lease = leases.get(session.connection(), "lease-1")
        assert (lease.server_host, lease.avoided_hosts) == ("cpu1", ["gpu1"])
        assert leases.events(session.connection(), "lease-1") == []


@pytest.mark.parametrize("changes", [{"status": "ACTIVE"}, {"id": "x"}, {"sever_id": "s1"}])
def test_an_update_refuses_what_is_not_a_column_to_change(database: Database, changes: dict):
    add(database, rows.lease())
    with pytest.raises(TypeError, match=next(iter(changes))), database.write() as session:
        leases.update(session.connection(), "lease-1", **changes)


def test_a_lease_that_is_not_there_cannot_be_moved(database: Database):
    with pytest.raises(exceptions.NotFound), database.write() as session:
        leases.transition(session.connection(), "lease-1", Event.BOOT)
    with pytest.raises(exceptions.NotFound), database.write() as session:
        leases.update(session.connection(), "lease-1", server_id="s1")


# What the engine asks


def test_unsettled_leases_are_those_on_their_way_and_failed_ones_that_hold_something(
    database: Database,
):
    fault = {"status": "ERROR", "fault_message": "the host does not answer"}
    released = {"status": "RELEASED", "released_at": rows.second(0)}
    wanted = {
        "claimed": {"status": "CLAIMED"},
        "booting": {"status": "BOOTING"},
        "releasing": {"status": "RELEASING"},
        "failed-with-claim": fault,
        "failed-with-server": {**fault, "server_id": "s1"},
        "failed-with-binding": {**fault, "bound_host": "cpu1"},
    }
    others = {"active": {"status": "ACTIVE", "server_id": "s2"}, "failed": fault, "past": released}
    both = {**others, **wanted}
    add(database, rows.host(), rows.gpu(used_mb=2048))
    add(
        database,
        *(
            rows.lease(lease_id, created_at=rows.second(number), **columns)
            for number, (lease_id, columns) in enumerate(both.items())
        ),
    )
    add(database, rows.claim("failed-with-claim"))
    with database.read() as session:
        assert leases.unsettled(session.connection()) == list(wanted)


def test_leases_bound_to_a_host_are_all_that_its_endpoint_should_hold(database: Database):
    add(
        database,
        rows.lease("1", created_at=rows.second(1), bound_host="cpu1"),
        rows.lease("2", created_at=rows.second(2), bound_host="cpu2"),
        rows.lease("3", created_at=rows.second(3)),
        rows.lease("4", created_at=rows.second(4), bound_host="cpu1"),
    )
    with database.read() as session:
        assert [lease.id for lease in leases.bound_to(session.connection(), "cpu1")] == ["1", "4"]


def test_an_admission_is_dated_by_the_clock_of_the_database(database: Database, monkeypatch):
    """Readers that ask for changes since a moment compare it with dates of several machines."""
    add(database, rows.lease(status=Status.ACTIVE, access=Access.DIRECT, has_server=False))
    told = datetime.datetime(2040, 1, 1)
    monkeypatch.setattr(clock, "now", lambda _connection: told)
    with database.writing() as connection:
        assert leases.admit(connection, "lease-1", "project-1", [Status.ACTIVE], "192.0.2.1")
    with database.reading() as connection:
        lease = leases.get(connection, "lease-1")
    assert (lease.admitted_address, lease.updated_at) == ("192.0.2.1", told)
