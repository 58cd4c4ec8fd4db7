# SPDX-License-Identifier: Apache-2.0
"""Drains of hosts and consents to moves as `gsaas`, `openstack gpu` and openstacksdk ask for them."""

from __future__ import annotations

import pytest
from openstack import exceptions

from gsaas.engine.drains import Drains
from gsaasclient.cli import hosts
from tests.api.openstack_user import user as user
from tests.api.test_cli_moves import desk as desk
from tests.api.test_cli_moves import gpu_of
from tests.api.test_moves import connect


def launched(desk, *options: str) -> tuple[str, str]:
    """Return a lease, and the host of its GPU."""
    words = ("-l", "-ncgpus=1", "-name=training", "-f=value", "-c=id", *options)
    status, out, err = desk.type(*words)
    assert status == 0, err
    desk.sit("admin")
    return out.strip(), gpu_of(desk.world, out.strip())[1]


def advance(desk) -> None:
    Drains(desk.world.database, desk.world.claims).audit()
    desk.world.engine.settle()


def test_a_drain_is_waited_for_and_says_what_each_lease_waits_for(desk, monkeypatch):
    lease_id, host = launched(desk)
    connect(desk.world, {"id": lease_id}, 1)
    steps = iter((lambda: None, lambda: connect(desk.world, {"id": lease_id}, 0)))

    def pause(_: float) -> None:
        next(steps, lambda: None)()
        advance(desk)

    monkeypatch.setattr(hosts, "sleep", pause)
    status, out, err = desk.type("hosts", f"-drain={host}", "-wait", "-reason=fans")
    assert status == 0, err
    assert err == (
        f"{host}: lease {lease_id}: not looked at yet\n{host}: lease {lease_id}: 1 connection is open\n"
    )
    assert f"{host}: drained: fans" in out
    assert gpu_of(desk.world, lease_id)[1] != host


def test_the_list_of_hosts_says_which_are_drained_and_what_is_left(desk):
    lease_id, host = launched(desk)
    connect(desk.world, {"id": lease_id}, 3)
    assert desk.type("hosts", f"-drain={host}", "-by=tomorrow 9:00")[0] == 0
    advance(desk)
    _, out, _ = desk.type("hosts")
    assert "draining" in out
    assert f"{host}: lease {lease_id}: 3 connections are open; cut at " in out
    (found,) = (one for one in desk.read("hosts")["hosts"] if one["name"] == host)
    assert [one["id"] for one in found["drain"]["leases"]] == [lease_id]
    _, out, _ = desk.type("show", lease_id)
    assert "its connections, because its GPU host is drained" in out
    assert desk.type("hosts", f"-enable={host}")[0] == 0
    assert "draining" not in desk.type("hosts")[1]


def test_force_cuts_what_is_connected(desk):
    lease_id, host = launched(desk)
    connect(desk.world, {"id": lease_id}, 3)
    assert desk.type("hosts", f"-drain={host}", "-force")[0] == 0
    advance(desk)
    assert gpu_of(desk.world, lease_id)[1] != host


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("-drain=gpu1", "-enable=gpu1"), "cannot be combined"),
        (("-drain=gpu1", "-forget=gpu1"), "cannot be combined"),
        (("-drain=gpu1", "-by=18:00", "-force"), "give one of them"),
        (("-enable=gpu1", "-wait"), "only with -drain"),
        (("-disable=gpu1", "-force"), "-force is valid only with"),
        (("-drain=compute1",), "has no GPUs"),
        (("-drain=gpu9",), "there is no host gpu9"),
    ],
)
def test_what_contradicts_itself_is_refused_and_changes_nothing(desk, words, why):
    desk.sit("admin")
    before = desk.world.rows()
    status, _, err = desk.type("hosts", *words)
    assert status in (1, 2)
    assert why in err
    assert desk.world.rows() == before


def test_a_lease_is_movable_as_its_owner_says(desk):
    lease_id, _ = launched(desk, "-movable=cut")
    desk.sit("member")
    assert desk.read("show", lease_id)["movable"] == "cut"
    assert desk.type("set", lease_id, "-movable=idle")[0] == 0
    assert desk.read("show", lease_id)["movable"] == "idle"
    status, _, err = desk.type("set", lease_id, "-movable=live")
    assert (status, "idle" in err) == (2, True)


@pytest.mark.slow
def test_openstack_drains_a_host(user):
    user.read("gpu", "lease", "create", "training", "--movable", "cut", "--wait", user="admin")
    assert user.read("gpu", "lease", "show", "training", user="admin")["movable"] == "cut"
    for options in (("--drain",), ("--disable", "--force"), ("--enable", "--drain")):
        status, _, err = user.type("gpu", "host", "set", "gpu1", *options, user="admin")
        assert status == 1
        assert "valid only with" in err
    words = ("gpu", "host", "set", "gpu1", "--disable", "--drain", "--by", "tomorrow 9:00")
    status, _, err = user.type(*words, user="admin")
    assert status == 0, err
    assert user.read("gpu", "host", "show", "gpu1", user="admin")["drain_by"]


def test_the_sdk_drains_a_host(user):
    gpus = user.connect("admin").gpu_scheduling
    assert gpus.drain_host("gpu1", "fans", force=True).drain["leases"] == []
    assert gpus.get_host("gpu1").is_disabled
    assert gpus.enable_host("gpu1").drain is None
    with pytest.raises(exceptions.ConflictException, match="has no GPUs"):
        gpus.drain_host("compute1")
