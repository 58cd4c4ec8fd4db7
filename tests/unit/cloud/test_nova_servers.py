"""What Nova and Neutron say of a server, as the engine sees it."""

from __future__ import annotations

import datetime

import pytest

from gsaas.cloud.base import Port, Server, ServerStatus
from gsaas.cloud.nova import servers

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


def said(status="ACTIVE", macs=("fa:16:3e:00:00:01", "fa:16:3e:00:00:02"), **more):
    """A server as Nova writes it, with one network for each MAC, in this order."""
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
        **more,
    }


def test_the_port_of_the_first_network_carries_the_binding_however_neutron_lists_them():
    server = servers.describe(said(), [SECOND, FIRST])
    assert server == Server("s", ServerStatus.ACTIVE, "here", FIRST_PORT)


@pytest.mark.parametrize(
    ("macs", "ports", "port"),
    [
        ([], [], None),
        ([], [FIRST], FIRST_PORT),  # Neutron has it, Nova has yet to note it
        ([], [FIRST, SECOND], None),  # which one is first is not known yet
        (["fa:16:3e:00:00:01"], [], None),
        (["fa:16:3e:00:00:09"], [FIRST, SECOND], None),
    ],
)
def test_a_port_is_named_as_soon_as_there_is_no_doubt_about_it(macs, ports, port):
    assert servers.first_port(said(macs=macs), ports) == port


def test_a_port_without_an_ipv4_address_cannot_carry_a_binding():
    only_ipv6 = {**FIRST, "fixed_ips": [{"ip_address": "fd00::5"}]}
    assert servers.first_port(said(), [only_ipv6]) is None


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
def test_what_the_owner_does_with_a_server_that_was_made_does_not_matter(status, seen):
    assert servers.describe(said(status), []).status is seen


@pytest.mark.parametrize("status", ["BUILD", "ACTIVE", "ERROR"])
@pytest.mark.parametrize("task", ["deleting", "soft-deleting"])
def test_what_is_said_of_a_server_on_its_way_out_is_no_failure(status, task):
    leaving = said(status, **{"OS-EXT-STS:task_state": task}, fault={"message": "Build aborted"})
    seen = servers.describe(leaving, [])
    assert (seen.status, seen.fault) == (ServerStatus.DELETING, None)


def test_a_failed_server_is_quoted_and_a_past_failure_is_not():
    fault = {"fault": {"message": "No valid host was found.", "details": "File ..."}}
    assert servers.describe(said("ERROR", **fault), []).fault == "No valid host was found."
    assert servers.describe(said("ACTIVE", **fault), []).fault is None


def test_where_a_server_is_can_be_told_from_a_list_of_all():
    shelved = said("SHELVED_OFFLOADED") | {"OS-EXT-SRV-ATTR:host": None}
    for server, host in ((said(), "here"), (shelved, None), (said("SOFT_DELETED"), None)):
        assert servers.placement(server) == ("s", host)


def test_a_server_on_no_host_has_none():
    shelved = said("SHELVED_OFFLOADED", **{"OS-EXT-SRV-ATTR:host": None})
    assert servers.describe(shelved, []).host is None


def marked(name, seconds, status="ACTIVE"):
    created = CLAIMED + datetime.timedelta(seconds=seconds)
    return {"id": name, "created": f"{created:%Y-%m-%dT%H:%M:%S}Z", "status": status}


def test_of_several_servers_with_the_tag_of_a_lease_the_first_one_is_its_server():
    found = [marked("copied", 30), marked("ours", 2), marked("also copied", 3)]
    assert servers.oldest(found, CLAIMED)["id"] == "ours"


def test_a_server_that_is_older_than_the_lease_was_never_its_server():
    before = -servers.SKEW.total_seconds()
    assert servers.oldest([marked("tagged later", before - 1)], CLAIMED) is None
    assert servers.oldest([marked("another clock", before)], CLAIMED)["id"] == "another clock"


@pytest.mark.parametrize("status", ["DELETED", "SOFT_DELETED"])
def test_a_deleted_server_is_nobodys(status):
    assert servers.oldest([marked("gone", 2, status)], CLAIMED) is None
    assert servers.oldest([], CLAIMED) is None
