# SPDX-License-Identifier: Apache-2.0
"""Nova's and Neutron's descriptions of a server become the engine's values."""

from __future__ import annotations

import datetime
from dataclasses import replace

import pytest

from gsaas.cloud.base import ListedServer, Owner, Port, Server, ServerChange, ServerStatus
from gsaas.cloud.nova import servers
from gsaas.objects.plain_server import PlainServer

FIRST = {
    "id": "11111111-2222-3333-4444-555555555555",
    "mac_address": "fa:16:3e:00:00:01",
    "fixed_ips": [{"ip_address": "fd00::5"}, {"ip_address": "10.0.0.5"}],
}
SECOND = {
    "id": "66666666-7777-8888-9999-000000000000",
    "mac_address": "fa:16:3e:00:00:02",
    "fixed_ips": [{"ip_address": "10.1.0.5"}],
}
FIRST_PORT = Port(FIRST["id"], "tap11111111-22", "fa:16:3e:00:00:01", "10.0.0.5")
CLAIMED = datetime.datetime(2026, 1, 1, 12, 0, 0)


def server_document(status="ACTIVE", macs=("fa:16:3e:00:00:01", "fa:16:3e:00:00:02"), **more):
    """Return a server as Nova's API describes it, with one network for each MAC, in this order."""
    addresses = {
        f"net-{mac[-2:]}": [
            {"OS-EXT-IPS-MAC:mac_addr": mac, "addr": "fd00::5"},
            {"OS-EXT-IPS-MAC:mac_addr": mac, "addr": "10.0.0.5"},
        ]
        for mac in macs
    }
    return {
        "id": "s",
        "status": status,
        "addresses": addresses,
        "OS-EXT-SRV-ATTR:host": "here",
        "created": "2026-01-01T12:00:01Z",
        "updated": "2026-01-01T12:00:09Z",
        **more,
    }


def test_the_port_of_the_first_network_carries_the_binding_in_any_order_of_ports():
    server = servers.describe(server_document(), [SECOND, FIRST])
    assert server == Server("s", ServerStatus.ACTIVE, "here", FIRST_PORT)


@pytest.mark.parametrize(
    ("macs", "ports", "port"),
    [
        ([], [], None),
        ([], [FIRST], FIRST_PORT),  # Nova does not list it yet
        ([], [FIRST, SECOND], None),  # which one is first is not known yet
        (["fa:16:3e:00:00:01"], [], None),
        (["fa:16:3e:00:00:09"], [FIRST, SECOND], None),
    ],
)
def test_a_port_is_returned_once_it_is_unambiguous(macs, ports, port):
    server = servers.describe(server_document(macs=macs), ports)
    assert (server.port, server.lacks_ipv4) == (port, False)


def test_a_port_has_all_its_ipv4_addresses():
    """In whatever order Neutron lists them: the first of them stays the first."""
    ips = ["fd00::5", "10.0.0.5", "10.0.2.7", "10.0.1.9"]
    several = {**FIRST, "fixed_ips": [{"ip_address": ip} for ip in ips]}
    server = servers.describe(server_document(), [several])
    assert server.port == replace(FIRST_PORT, other_ips=("10.0.1.9", "10.0.2.7"))


def test_a_port_without_an_ipv4_address_cannot_carry_a_binding():
    only_ipv6 = {**FIRST, "fixed_ips": [{"ip_address": "fd00::5"}]}
    server = servers.describe(server_document(), [only_ipv6, SECOND])
    assert (server.port, server.lacks_ipv4) == (None, True)


@pytest.mark.parametrize(
    ("status", "seen"),
    [
        ("BUILD", ServerStatus.BUILD),
        ("ERROR", ServerStatus.ERROR),
        ("SHELVED_OFFLOADED", ServerStatus.SHELVED),
        *[
            (status, ServerStatus.ACTIVE)
            for status in [
                "ACTIVE",
                "SHUTOFF",
                "PAUSED",
                "SUSPENDED",
                "REBOOT",
                "HARD_REBOOT",
                "REBUILD",
                "RESIZE",
                "VERIFY_RESIZE",
                "REVERT_RESIZE",
                "MIGRATING",
                "RESCUE",
                "SHELVED",
                "PASSWORD",
            ]
        ],
    ],
)
def test_a_server_stays_active_whatever_its_owner_does_with_it(status, seen):
    assert servers.describe(server_document(status), []).status is seen


@pytest.mark.parametrize("status", ["BUILD", "ACTIVE", "ERROR"])
@pytest.mark.parametrize("task", ["deleting", "soft-deleting"])
def test_an_error_of_a_server_that_is_being_deleted_is_no_failure(status, task):
    leaving = server_document(
        status, **{"OS-EXT-STS:task_state": task}, fault={"message": "Build aborted"}
    )
    seen = servers.describe(leaving, [])
    assert (seen.status, seen.fault) == (ServerStatus.DELETING, None)


def test_only_a_server_in_error_has_a_fault():
    fault = {"fault": {"message": "No valid host was found.", "details": "File ..."}}
    failed = servers.describe(server_document("ERROR", **fault), [])
    assert failed.fault == "No valid host was found."
    assert failed.failed_at == datetime.datetime(2026, 1, 1, 12, 0, 9)
    working = servers.describe(server_document("ACTIVE", **fault), [])
    assert (working.fault, working.failed_at) == (None, None)


def test_the_placement_of_a_server_is_its_host_unless_it_is_gone():
    shelved = server_document("SHELVED_OFFLOADED") | {"OS-EXT-SRV-ATTR:host": None}
    for server, host in (
        (server_document(), "here"),
        (shelved, None),
        (server_document("SOFT_DELETED"), None),
    ):
        assert servers.placement(server) == ("s", host)


def test_a_server_on_no_host_has_none():
    shelved = server_document("SHELVED_OFFLOADED", **{"OS-EXT-SRV-ATTR:host": None})
    assert servers.describe(shelved, []).host is None


def tagged(name, seconds, status="ACTIVE"):
    created = CLAIMED + datetime.timedelta(seconds=seconds)
    return {"id": name, "created": f"{created:%Y-%m-%dT%H:%M:%S}Z", "status": status}


def test_of_several_servers_with_the_tag_of_a_lease_the_oldest_is_its_server():
    found = [tagged("copied", 30), tagged("ours", 2), tagged("also copied", 3)]
    assert servers.oldest(found, CLAIMED)["id"] == "ours"


def test_a_server_older_than_its_lease_is_not_its_server():
    before = -servers.SKEW.total_seconds()
    assert servers.oldest([tagged("tagged later", before - 1)], CLAIMED) is None
    assert servers.oldest([tagged("another clock", before)], CLAIMED)["id"] == "another clock"


@pytest.mark.parametrize("status", ["DELETED", "SOFT_DELETED"])
def test_a_deleted_server_is_not_the_lease_s(status):
    assert servers.oldest([tagged("gone", 2, status)], CLAIMED) is None
    assert servers.oldest([], CLAIMED) is None


def plain_document(**more):
    """Return a server with what decides whether it gets cGPUs."""
    flavor = {"original_name": "gpu", "extra_specs": {"gsaas:ncgpus": "1"}}
    owned = {"name": "web", "tenant_id": "p", "user_id": "u", "metadata": {"a": "b"}}
    return server_document(**{"flavor": flavor, "tags": ["x"], **owned, **more})


def test_a_plain_server_is_its_owners_with_the_properties_that_nova_stores():
    assert servers.plain(plain_document()) == PlainServer(
        id="s",
        project_id="p",
        user_id="u",
        name="web",
        host="here",
        is_usable=True,
        extra_specs={"gsaas:ncgpus": "1"},
        metadata={"a": "b"},
    )


@pytest.mark.parametrize(
    "more",
    [
        {"status": "ERROR"},
        {"status": "SHELVED_OFFLOADED"},
        {"status": "SHUTOFF"},
        {"OS-EXT-STS:task_state": "deleting"},
    ],
)
def test_a_server_that_neither_boots_nor_runs_gets_no_cgpus(more):
    assert not servers.plain(plain_document(**more)).is_usable


def test_a_change_says_whether_the_server_asks_for_cgpus_whose_lease_made_it_and_when_it_was():
    at = datetime.datetime.fromisoformat(plain_document()["updated"]).replace(tzinfo=None)
    assert servers.change(plain_document()) == ServerChange("s", asks=True, at=at)
    made = plain_document(tags=["gsaas-lease-l"], flavor={"original_name": "small"})
    assert servers.change(made) == ServerChange("s", "l", at=at)
    assert servers.change({"id": "s", "status": "DELETED"}) == ServerChange("s")


def test_a_listed_server_has_the_leases_of_all_its_tags():
    """Its owner may have set some of them."""
    tags = ["x", "gsaas-lease-l", "gsaas-lease-m"]
    listed = servers.listed(plain_document(tags=tags))
    assert listed == ListedServer("s", "p", "here", frozenset({"l", "m"}))
    shelved = servers.listed(plain_document(**{"OS-EXT-SRV-ATTR:host": None}))
    assert shelved == ListedServer("s", "p", None)


OWNER = Owner("l", "p", CLAIMED, "own")
OWN = {"id": "own", "tenant_id": "p", "OS-EXT-SRV-ATTR:user_data": "I2Nsb3Vk"}
TWIN = {**OWN, "id": "second", "tags": ["gsaas-lease-l"]}


def test_a_server_with_the_tag_and_the_user_data_of_a_lease_that_has_another_one_is_a_second_one():
    assert servers.is_second(TWIN, OWN, OWNER)


@pytest.mark.parametrize(
    "more",
    [
        {"id": "own"},
        {"tenant_id": "another"},
        {"tags": ["gsaas-lease-m"]},
        {"OS-EXT-SRV-ATTR:user_data": "its owner's"},
        {"OS-EXT-SRV-ATTR:user_data": None},
    ],
)
def test_any_other_server_stays(more):
    """Its owner can set any tag, for example on a copy of the server."""
    assert not servers.is_second({**TWIN, **more}, OWN, OWNER)


def test_without_user_data_nothing_is_known():
    hidden = {"OS-EXT-SRV-ATTR:user_data": None}
    assert not servers.is_second({**TWIN, **hidden}, {**OWN, **hidden}, OWNER)
