# SPDX-License-Identifier: Apache-2.0
"""Teardown leaves a host as it was found, whichever process calls it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import pytest

from gsaas.rodvr.config import DatapathConfig
from gsaas.rodvr.endpoint import Endpoint
from gsaas.rodvr.kernel import Datapath
from gsaas.rodvr.kernel.conntrack import Conntrack
from tests.kernel.rodvr.lab import USUAL, A, Lab, binding, eventually

pytestmark = pytest.mark.kernel


SETTINGS = [f"/proc/sys/net/{family}/conf" for family in ("ipv4", "ipv6")]


@pytest.fixture
def routing_host(lab: Lab) -> Iterator[None]:
    """The compute host routes between the GPU network and VM 1's network, independently of RODVR."""
    for device in ("gpu0", "br-a"):
        lab.sysctl("cmp", f"ipv4/conf/{device}/forwarding", 1)
    lab.ip("g1", "route add 10.0.0.0/24 via 192.168.50.1")
    yield
    lab.ip("g1", "route del 10.0.0.0/24")
    for device in ("gpu0", "br-a"):
        lab.sysctl("cmp", f"ipv4/conf/{device}/forwarding", 0)


def host(lab: Lab) -> object:
    return (
        sorted((link["ifname"], link["mtu"], link["operstate"]) for link in _links(lab)),
        lab.ip_json("cmp", "rule"),
        sorted(str(route) for route in lab.ip_json("cmp", "-4 route show table all")),
        sorted(str(n["dst"]) for n in lab.ip_json("cmp", "-4 neigh show nud permanent")),
        lab.run("cmp", "sh", "-c", f"grep -r . {' '.join(SETTINGS)}", check=False),
        [entry for entry in lab.ruleset() if "metainfo" not in entry],
    )


def _links(lab: Lab) -> list[dict[str, Any]]:
    return lab.ip_json("cmp", "link")


def bind_all(endpoint: Endpoint) -> None:
    endpoint.replace(binding(vm, mappings) for vm, mappings in USUAL.items())


def test_everything_is_as_before(lab: Lab, make_endpoint: Any) -> None:
    before = host(lab)
    endpoint = make_endpoint()
    bind_all(endpoint)
    assert lab.reaches("vm1", A) == "g1:8308"
    assert host(lab) != before
    endpoint.teardown()
    assert host(lab) == before
    assert lab.connections("-s", "240.71.0.1") == []


@pytest.mark.parametrize("forwarding", ["0", "1"])
def test_another_process_restores_what_the_gpu_nic_did_before(
    lab: Lab, make_endpoint: Any, forwarding: str
) -> None:
    lab.sysctl("cmp", "ipv4/conf/gpu0/forwarding", forwarding)
    try:
        endpoint = make_endpoint()
        bind_all(endpoint)
        endpoint.stop()
        assert lab.sysctl("cmp", "ipv4/conf/gpu0/forwarding") == "1"
        Endpoint("cmp", DatapathConfig("gpu0", lab.compute)).teardown()
        assert lab.sysctl("cmp", "ipv4/conf/gpu0/forwarding") == forwarding
    finally:
        lab.sysctl("cmp", "ipv4/conf/gpu0/forwarding", 0)


def test_the_former_setting_is_known_even_after_the_pair_was_deleted(
    lab: Lab, make_endpoint: Any
) -> None:
    endpoint = make_endpoint()
    endpoint.stop()
    lab.ip("cmp", "link del rodvr0")
    make_endpoint().stop()
    Endpoint("cmp", DatapathConfig("gpu0", lab.compute)).teardown()
    assert lab.sysctl("cmp", "ipv4/conf/gpu0/forwarding") == "0"


def test_a_gpu_nic_that_forwarded_before_keeps_forwarding_for_others(
    lab: Lab, routing_host: None, make_endpoint: Any
) -> None:
    bind_all(make_endpoint())
    assert lab.ping("g1", "10.0.0.5")
    assert lab.reaches("vm1", A) == "g1:8308"


def test_another_gpu_nic_gives_the_former_one_its_setting_back(
    lab: Lab, make_endpoint: Any
) -> None:
    make_endpoint().stop()
    other = Endpoint("cmp", DatapathConfig("br-b", lab.compute))
    other.start()
    try:
        assert lab.sysctl("cmp", "ipv4/conf/gpu0/forwarding") == "0"
        assert lab.sysctl("cmp", "ipv4/conf/br-b/forwarding") == "1"
    finally:
        other.teardown()
    assert lab.sysctl("cmp", "ipv4/conf/br-b/forwarding") == "0"


def test_no_connection_is_tracked_that_would_be_in_the_way_of_another(
    lab: Lab, endpoint: Endpoint
) -> None:
    talk = lab.talk("vm1", A, count=10_000)
    assert talk.line().startswith("g1:8308")
    endpoint.teardown()
    assert [line for line in lab.connections() if "240.71." in line] == []


@pytest.mark.parametrize(
    "stray",
    [
        pytest.param("-s 169.254.71.1 --sport 8308 -d 240.71.0.1 --dport 40001", id="a reply"),
        pytest.param("-s 240.71.0.1 --sport 40002 -d 169.254.71.1 --dport 8308", id="a request"),
    ],
)
def test_what_was_tracked_while_there_were_no_tables_is_in_no_vms_way(
    lab: Lab, make_endpoint: Any, stray: str
) -> None:
    lab.track(stray)
    make_endpoint().apply(binding("vm1", USUAL["vm1"]))
    port = int(next(word for word in stray.split() if word.startswith("4000")))
    assert lab.talk("vm1", A, count=0, source_port=port).line().startswith("g1:8308")


def test_what_is_in_the_way_is_forgotten_as_soon_as_the_kernel_allows_it(
    lab: Lab, make_endpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget, refused = Datapath.forget_strays, list[str]()

    def refuse(datapath: Datapath) -> None:
        if not refused:
            refused.append("once")
            raise OSError(errno.EBUSY, "busy")
        forget(datapath)

    monkeypatch.setattr(Datapath, "forget_strays", refuse)
    lab.track("-s 169.254.71.1 --sport 8308 -d 240.71.0.1 --dport 40003")
    endpoint = make_endpoint(retry_interval=0.1)
    eventually(lambda: lab.connections("-d", "240.71.0.1") == [])
    eventually(lambda: endpoint.report().problems == ())


def test_a_teardown_that_cannot_forget_connections_says_so_and_removes_the_rest(
    lab: Lab, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EBUSY, "busy")

    monkeypatch.setattr(Conntrack, "forget", refuse)
    with pytest.raises(OSError, match="busy"):
        endpoint.teardown()
    assert "rodvr" not in lab.nft("list tables")
    assert not [link for link in _links(lab) if link["ifname"].startswith("rodvr")]


def test_teardown_twice_or_of_nothing_is_no_error(lab: Lab) -> None:
    before = host(lab)
    endpoint = Endpoint("cmp", DatapathConfig("gpu0", lab.compute))
    endpoint.teardown()
    endpoint.teardown()
    assert host(lab) == before


def test_an_endpoint_may_start_again_after_teardown(lab: Lab, make_endpoint: Any) -> None:
    endpoint = make_endpoint()
    bind_all(endpoint)
    endpoint.teardown()
    endpoint.start()
    bind_all(endpoint)
    assert lab.reaches("vm1", A) == "g1:8308"
