# SPDX-License-Identifier: Apache-2.0
"""Leases with an end, as `gsaas` and `openstack gpu` ask for them and show them."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from gsaas.db import leases
from gsaasclient.times import local
from tests.api.desk import served
from tests.api.openstack_user import user as user
from tests.api.world import World

HOUR = datetime.timedelta(hours=1)
SECOND = datetime.timedelta(seconds=1)


def row(world: World, lease_id: str) -> Any:
    with world.database.reading() as connection:
        return leases.get(connection, lease_id)


def end_in(world: World, lease_id: str, within: datetime.timedelta) -> None:
    with world.database.writing() as connection:
        leases.update(connection, lease_id, ends_at=world.database.now() + within)


def launched(desk, *words: str, launch: str = "-l") -> Any:
    status, out, err = desk.type(launch, "-ncgpus=1", *words, "-f=value", "-c=id")
    assert status == 0, err
    return row(desk.world, out.strip())


@pytest.mark.parametrize("launch", ["-l", "alloc"])
def test_a_launch_says_how_long_it_lasts(desk, launch):
    lease = launched(desk, "-for=1h30m", launch=launch)
    assert lease.duration == 5400
    assert lease.ends_at == lease.claimed_at + 1.5 * HOUR


def test_a_bare_number_is_seconds(desk):
    assert launched(desk, "-for", "90").duration == 90


def test_a_launch_says_until_when_it_lasts(desk):
    before = desk.world.database.now()
    lease = launched(desk, "-until=+2h")
    assert before + 2 * HOUR - SECOND <= lease.ends_at <= desk.world.database.now() + 2 * HOUR
    assert launched(desk, "-until=2040-12-01T09:00+01:00").ends_at == datetime.datetime(
        2040, 12, 1, 8
    )


def test_a_request_that_waits_has_its_duration_afterwards(desk):
    held = launched(desk)
    status, out, err = desk.type(
        *("-l", "-ncgpus=8", "-for=1h", "-wait", "-nowait", "-f=value", "-c=id")
    )
    assert status == 0, err
    waiting = row(desk.world, out.strip())
    assert (waiting.status, waiting.duration, waiting.ends_at) == ("QUEUED", 3600, None)
    assert held.status == "ACTIVE"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-for=8x"], "-for is a duration such as 10m, 2h, 1h30m, 3d or 90 (seconds), not '8x'"),
        (["-until=someday"], "-until is a date or time such as tomorrow 9:00"),
        (["-for=1h", "-until=+1h"], "-for and -until cannot be combined"),
    ],
)
def test_what_cannot_be_understood_is_a_usage_error_and_launches_nothing(desk, words, said):
    status, _, err = desk.type("-l", "-ncgpus=1", *words)
    assert (status, said in err) == (2, True), err
    assert desk.read("list") == []


def test_an_end_in_the_past_is_refused_by_the_api(desk):
    status, _, err = desk.type("-l", "-ncgpus=1", "-until=2020-01-01")
    assert status == 2
    assert "gsaas: -until would end the lease at 20" in err


def test_where_leases_have_to_end_the_message_names_the_option(tmp_path, capsys, monkeypatch):
    world = World.build(tmp_path, settings="[leases]\nlongest_duration = 28800\n")
    with served(world, tmp_path, capsys, monkeypatch) as desk:
        status, _, err = desk.type("-l", "-ncgpus=1")
        assert status == 2
        assert "gsaas: -for is needed: each lease ends here, after 8 h at most" in err
        status, _, err = desk.type("-l", "-ncgpus=1", "-for=2d")
        assert status == 1
        assert "the lease would last 2 d, and at most 8 h are allowed here" in err
    world.database.close()


def test_show_says_how_far_away_the_end_is_and_the_launch_does_so_too(desk):
    status, out, err = desk.type("-l", "-ncgpus=1", "-for=2h", "-name=mine")
    assert status == 0, err
    assert "ends" in out
    lease_id = desk.read("list", "-name=mine", "-c=id")[0]["id"]
    end_in(desk.world, lease_id, 7.75 * HOUR + 30 * SECOND)
    line = next(line for line in desk.type("show", "mine")[1].splitlines() if "  ends " in line)
    assert "in 7h45m, at " in line
    end = desk.read("show", "mine", "-c=ends_at")["ends_at"]
    assert line.endswith(f", at {local(end)}")


def test_a_list_says_so_of_leases_that_end_soon(desk):
    lease_id = launched(desk, "-for=2h", "-name=mine").id
    assert "ends" not in desk.type("list")[1]
    end_in(desk.world, lease_id, HOUR / 7)
    assert "ACTIVE, ends in 8m" in desk.type("list")[1]
    assert desk.read("list", "-c=ends_at")[0]["ends_at"].endswith("Z")


def test_a_lease_that_is_over_does_not_end_soon(desk):
    lease_id = launched(desk, "-for=2h").id
    assert desk.type("-t", f"-id={lease_id}")[0] == 0
    end_in(desk.world, lease_id, HOUR / 7)
    assert "ends in" not in desk.type("list", "-status=RELEASED")[1]


def set_(desk, lease_id: str, *words: str) -> Any:
    status, _, err = desk.type("set", lease_id, *words)
    assert status == 0, err
    return row(desk.world, lease_id)


def test_its_owner_changes_how_long_a_lease_lasts(desk):
    lease = launched(desk, "-for=1h")
    assert set_(desk, lease.id, "-for=3h").ends_at == lease.claimed_at + 3 * HOUR
    assert set_(desk, lease.id, "-for=+30m").ends_at == lease.claimed_at + 3.5 * HOUR
    assert set_(desk, lease.id, "-until=2040-01-01T00:00Z").ends_at.year == 2040
    assert set_(desk, lease.id, "-for=+1d").ends_at == datetime.datetime(2040, 1, 2)
    never = set_(desk, lease.id, "-until=never")
    assert (never.ends_at, never.duration) == (None, None)


def test_a_lease_without_an_end_cannot_be_postponed(desk):
    lease = launched(desk)
    status, _, err = desk.type("set", lease.id, "-for=+1h")
    assert (status, "has no end" in err) == (2, True)


@pytest.mark.parametrize("longer", ["4000000d", "99999999999999999"])
def test_a_lease_cannot_be_postponed_beyond_the_end_of_time(desk, longer):
    lease = launched(desk, "-until=2040-01-01T00:00Z")
    status, _, err = desk.type("set", lease.id, f"-for=+{longer}")
    assert (status, "is longer than time lasts" in err) == (2, True)
    assert row(desk.world, lease.id).ends_at == lease.ends_at


def test_who_waits_for_a_lease_that_ends_when_time_does_sees_his_turn(desk):
    launched(desk, "-until=9999-12-31T23:59Z")
    status, out, err = desk.type(
        *("-l", "-ncgpus=8", "-for=1h", "-wait", "-nowait", "-f=value", "-c=id")
    )
    assert status == 0, err
    assert desk.read("show", out.strip())["queue"]["position"] == 1


def test_its_owner_gives_it_another_name_and_leaves_its_end(desk):
    lease = launched(desk, "-for=1h", "-name=mine")
    named = set_(desk, lease.id, "-name=yours")
    assert (named.name, named.ends_at) == ("yours", lease.ends_at)
    assert desk.type("set", "yours", "-for=2h", "-f=value", "-c=name")[1] == "yours\n"
    assert "  ends " in desk.type("set", "yours", "-name=ours")[1]


def test_a_request_that_waits_lets_others_pass(desk):
    launched(desk)
    status, out, _ = desk.type(*("-l", "-ncgpus=8", "-wait", "-nowait", "-f=value", "-c=id"))
    assert status == 0
    assert set_(desk, out.strip(), "-priority=-1").priority == -1


def test_a_change_of_nothing_is_a_usage_error(desk):
    status, _, err = desk.type("set", launched(desk).id)
    assert (status, "nothing to change" in err) == (2, True)


def make(user, *words: str) -> Any:
    made = user.read("gpu", "lease", "create", "--no-server", *words)
    return row(user.world, made["id"])


@pytest.mark.slow
def test_openstack_has_the_same(user):
    lease = make(user, "--for", "1h30m")
    assert (lease.duration, lease.ends_at) == (5400, lease.claimed_at + 1.5 * HOUR)
    assert make(user, "--until", "2040-12-01T09:00+01:00").ends_at.year == 2040
    shown = user.read("gpu", "lease", "show", lease.id)
    assert (shown["duration"], shown["ends_at"].endswith("Z")) == (5400, True)


@pytest.mark.slow
def test_openstack_changes_the_end_and_removes_it(user):
    lease = make(user, "--for", "1h")
    assert user.type("gpu", "lease", "set", lease.id, "--for", "2h")[0] == 0
    assert row(user.world, lease.id).ends_at == lease.claimed_at + 2 * HOUR
    assert user.type("gpu", "lease", "set", lease.id, "--no-end")[0] == 0
    assert row(user.world, lease.id).ends_at is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["--for", "8x"], ["--until", "someday"], ["--for", "1h", "--until", "+1h"]]
)
def test_openstack_refuses_what_it_cannot_understand(user, words):
    with pytest.raises(SystemExit):
        user.type("gpu", "lease", "create", "--no-server", *words)
    assert user.read("gpu", "lease", "list") == []
