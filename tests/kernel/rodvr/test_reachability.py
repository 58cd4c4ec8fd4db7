# SPDX-License-Identifier: Apache-2.0
"""A VM reaches exactly the daemons its masked addresses are mapped to, however it is set up."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from gsaas.objects.address import Address
from gsaas.rodvr.endpoint import Endpoint
from tests.kernel.rodvr.lab import G1, PORT, A, B, Lab, binding

pytestmark = pytest.mark.kernel


def test_a_masked_address_reaches_its_daemon_as_the_compute_host(
    lab: Lab, endpoint: Endpoint
) -> None:
    assert lab.ask("vm1", A) == "g1:8308 peer=192.168.50.1"


def test_a_masked_address_may_stand_for_another_port(lab: Lab, endpoint: Endpoint) -> None:
    assert lab.reaches("vm1", B) == "g2:8309"


def test_the_same_masked_address_means_another_daemon_to_another_vm(
    lab: Lab, endpoint: Endpoint
) -> None:
    """VMs 1 and 2 even have the same IP and MAC."""
    assert lab.reaches("vm2", A) == "g2:8308"


def test_equal_connections_of_two_vms_do_not_meet(lab: Lab, endpoint: Endpoint) -> None:
    """Same source address, source port, destination address and port, at the same time."""
    first = lab.talk("vm1", A, source_port=40000)
    assert first.line() == "g1:8308 peer=192.168.50.1"
    second = lab.talk("vm2", A, source_port=40000)
    assert second.line() == "g2:8308 peer=192.168.50.1"
    assert [first.process.poll(), second.process.poll()] == [None, None]
    for peer in (first, second):
        peer.process.terminate()


def test_a_daemon_on_the_compute_host_itself_is_reached(lab: Lab, endpoint: Endpoint) -> None:
    lab.daemon("cmp", "local", 8310)
    elsewhere = Address("169.254.71.9", PORT)
    endpoint.apply(binding("vm1", {elsewhere: Address("192.168.50.1", 8310)}))
    assert lab.ask("vm1", elsewhere) == "local:8310 peer=240.71.0.1"


@pytest.mark.parametrize(
    "route",
    [
        pytest.param(None, id="only its default gateway"),
        pytest.param("169.254.71.0/24 dev eth0 scope link", id="an on-link route"),
        pytest.param("169.254.71.0/24 via 169.254.71.1 dev eth0 onlink", id="a masked gateway"),
    ],
)
def test_a_vm_needs_no_more_than(lab: Lab, endpoint: Endpoint, route: str | None) -> None:
    usual = "169.254.71.0/24 dev eth0 scope link"
    lab.ip("vm1", f"route del {usual}")
    try:
        if route:
            lab.ip("vm1", f"route add {route}; neigh flush all")
        assert lab.reaches("vm1", A) == "g1:8308"
    finally:
        if route:
            lab.ip("vm1", f"route del {route}")
        lab.ip("vm1", f"route add {usual}; neigh flush all")


def test_a_vm_without_any_gateway_gets_its_arp_answered(lab: Lab, endpoint: Endpoint) -> None:
    lab.ip("vm2", "route del default; neigh flush all")
    try:
        assert lab.reaches("vm2", A) == "g2:8308"
        neighbours = {n["dst"]: n["lladdr"] for n in lab.ip_json("vm2", "neigh") if "lladdr" in n}
        assert neighbours == {A.ip: "02:52:4f:44:56:01"}
    finally:
        lab.ip("vm2", "route add default via 10.0.0.1")


def test_other_traffic_of_the_vm_is_not_touched(lab: Lab, endpoint: Endpoint) -> None:
    assert lab.ping("vm1", "10.0.0.1")
    assert lab.counter("netdev", "in-tap11111111-11", -1) == 0


OFFLOADS = {
    "nowhere": [],
    "in the VM": [("vm1", "eth0")],
    "on the GPU NIC": [("cmp", "gpu0")],
    "on the veth pair": [("cmp", "rodvr0"), ("cmp", "rodvr1")],
    "on the tap": [("cmp", "tap11111111-11")],
}
OFFLOADS["anywhere"] = [*chain.from_iterable(OFFLOADS.values()), ("g1", "eth0")]


@pytest.mark.parametrize("places", OFFLOADS.values(), ids=OFFLOADS.keys())
def test_data_stays_intact_without_offloads(lab: Lab, endpoint: Endpoint, places: Any) -> None:
    def switch(state: str) -> None:
        for place, device in places:
            features = [(name, state) for name in ("tx", "rx", "tso", "gso", "gro")]
            lab.run(place, "ethtool", "-K", device, *chain.from_iterable(features))

    switch("off")
    try:
        assert lab.transfer("vm1", A, 16) == "intact"
    finally:
        switch("on")


@pytest.mark.parametrize(
    ("vm", "gpu_nic", "daemon"),
    [
        (1450, 1500, 1500),
        (1450, 9000, 9000),
        (9000, 9000, 9000),
        (9000, 1500, 9000),
        (9000, 1500, 1500),
        (1500, 9000, 1500),
    ],
)
def test_data_stays_intact_with_mtu(
    lab: Lab, endpoint: Endpoint, vm: int, gpu_nic: int, daemon: int
) -> None:
    """Changed under a running endpoint: no call is needed."""

    def change(vm: int, gpu_nic: int, daemon: int) -> None:
        lab.ip("vm1", f"link set eth0 mtu {vm}")
        lab.ip("cmp", f"link set tap11111111-11 mtu {vm}; link set gpu0 mtu {gpu_nic}")
        lab.ip("sw", f"link set to-cmp mtu {gpu_nic}; link set to-g1 mtu {daemon}")
        lab.ip("g1", f"link set eth0 mtu {daemon}")

    change(vm, gpu_nic, daemon)
    try:
        assert lab.transfer("vm1", A, 8) == "intact"
    finally:
        change(1500, 1500, 1500)


def test_a_binding_without_mappings_answers_no(lab: Lab, endpoint: Endpoint) -> None:
    assert lab.reaches("vm3", A) == "ConnectionRefusedError"
    endpoint.apply(binding("vm3", {A: G1}))
    assert lab.reaches("vm3", A) == "g1:8308"
