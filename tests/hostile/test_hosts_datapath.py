# SPDX-License-Identifier: Apache-2.0
"""A binding that leads a VM to the compute host itself, or out of the GPU network: the endpoint refuses it.

The engine refuses such addresses, too. Here it is the one that lies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from gsaas.objects.address import Address
from gsaas.objects.binding import LocalBinding
from gsaas.objects.gpu_network import GpuNetwork
from gsaas.rodvr.endpoint import Endpoint
from tests.kernel.rodvr.lab import COMPUTE_IP, G1, G2, PORT, A, B, Lab, binding, eventually

pytestmark = pytest.mark.kernel

MANAGEMENT = "192.168.51.1"
NETWORK = GpuNetwork.of(["192.168.50.0/24"])
Make = Callable[..., Endpoint]


@pytest.fixture
def services(lab: Lab) -> Iterator[None]:
    """A management interface of the compute host, and services of it that listen everywhere."""
    lab.ip("cmp", "link add mgmt0 type bridge; link set mgmt0 up")
    lab.ip("cmp", f"addr add {MANAGEMENT}/24 dev mgmt0; addr add 192.0.2.77/32 dev lo")
    service = lab.daemon("cmp", "cmp", 22, 5900)
    try:
        yield
    finally:
        service.process.terminate()
        service.process.communicate()
        lab.ip("cmp", "link del mgmt0; addr del 192.0.2.77/32 dev lo")


OWN = {
    "loopback": (Address("127.0.0.1", 5900), "a loopback address"),
    "another address of lo": (Address("192.0.2.77", 5900), "not in the GPU network"),
    "the management address": (Address(MANAGEMENT, 5900), "not in the GPU network"),
    "the tenants' bridge": (Address("10.0.0.1", 5900), "not in the GPU network"),
    "ssh at the GPU address": (Address(COMPUTE_IP, 22), "a port of its services"),
    "the metadata service": (Address("169.254.169.254", 80), "a link-local address"),
    "multicast": (Address("224.0.0.1", 5900), "a multicast address"),
    "a masked address": (Address("169.254.71.2", PORT), "a link-local address"),
    "an identity": (Address("240.71.0.2", PORT), "a reserved address"),
}


@pytest.mark.parametrize(("real", "why"), OWN.values(), ids=OWN)
@pytest.mark.parametrize("network", [NETWORK, GpuNetwork()], ids=["configured", "by routes"])
def test_a_vm_reaches_no_service_of_its_compute_host(
    lab: Lab,
    make_endpoint: Make,
    services: None,
    network: GpuNetwork,
    real: Address,
    why: str,
) -> None:
    endpoint = make_endpoint(gpu_network=network)
    endpoint.replace([binding("vm2", {A: G2})])
    report = endpoint.apply(binding("vm1", {A: real}))
    assert not report.bindings["port-vm1"].installed
    (problem,) = report.problems
    assert problem.startswith(f"port port-vm1: {A} is not mapped to {real}: ")
    assert why in problem
    assert "cmp" not in lab.ask("vm1", A, seconds=0.3)
    assert lab.reaches("vm2", A) == "g2:8308"  # the bindings of others stay
    named = [
        element for element in lab.map_elements("ip", "real") if f"'{real.ip}'" in str(element)
    ]
    assert named == []


def test_all_other_addresses_of_the_host_are_refused_even_if_the_gpu_network_contains_them(
    lab: Lab,
    make_endpoint: Make,
    services: None,
) -> None:
    endpoint = make_endpoint(gpu_network=GpuNetwork.of(["192.168.0.0/16"]))
    report = endpoint.apply(binding("vm1", {A: Address(MANAGEMENT, 5900)}))
    assert f"{MANAGEMENT} is this host's own address, on mgmt0" in report.problems[0]
    assert "cmp" not in lab.ask("vm1", A, seconds=0.3)


def test_a_binding_that_is_refused_replaces_the_former_one_of_the_port(
    lab: Lab,
    make_endpoint: Make,
) -> None:
    """The engine has said that the VM is to reach something else: it no longer reaches what it did."""
    endpoint = make_endpoint(gpu_network=NETWORK)
    endpoint.replace([binding("vm1", {A: G1})])
    endpoint.apply(binding("vm1", {A: Address("127.0.0.1", 22), B: G1}))
    assert lab.reaches("vm1", A) != "g1:8308"
    assert endpoint.apply(binding("vm1", {A: G1})).problems == ()
    # Not at once: the VM's kernel may just be giving up its three ARP requests for an address that nobody had.
    eventually(lambda: lab.reaches("vm1", A) == "g1:8308")


def test_programs_of_the_host_are_not_led_out_of_the_gpu_network_either(
    lab: Lab,
    make_endpoint: Make,
) -> None:
    endpoint = make_endpoint(gpu_network=NETWORK)
    masked = Address("169.254.72.1", PORT)
    good = LocalBinding("lease-2", "lease-2", None, {Address("169.254.72.2", PORT): G1})
    bad = LocalBinding("lease-1", "lease-1", None, {masked: Address(MANAGEMENT, 5900)})
    report = endpoint.replace([good, bad])
    assert report.bindings["lease-2"].installed
    assert not report.bindings["lease-1"].installed
    assert "is not in the GPU network" in report.problems[0]
    report = endpoint.apply(bad)
    assert not report.bindings["lease-1"].installed


def test_a_gpu_network_behind_a_router_is_known_by_the_configuration(
    lab: Lab,
    make_endpoint: Make,
) -> None:
    endpoint = make_endpoint(gpu_network=GpuNetwork.of(["198.51.100.0/24"]))
    assert endpoint.apply(binding("vm1", {A: Address("198.51.100.7", PORT)})).problems == ()


def test_or_by_the_routes_through_the_gpu_nic(
    lab: Lab,
    make_endpoint: Make,
) -> None:
    endpoint = make_endpoint()
    routed = Address("198.51.100.7", PORT)
    report = endpoint.apply(binding("vm1", {A: routed}))
    assert "set [gpu_network]prefixes" in report.problems[0]
    lab.ip("cmp", "route add 198.51.100.0/24 via 192.168.50.11 dev gpu0")
    try:
        eventually(lambda: endpoint.apply(binding("vm1", {A: routed})).problems == ())
    finally:
        lab.ip("cmp", "route del 198.51.100.0/24")


def test_gpus_of_the_host_itself_are_reached_at_its_address_on_the_gpu_network(
    lab: Lab,
    make_endpoint: Make,
    services: None,
) -> None:
    endpoint = make_endpoint(gpu_network=NETWORK)
    endpoint.apply(binding("vm1", {A: Address(COMPUTE_IP, 5900)}))
    assert lab.reaches("vm1", A) == "cmp:5900"
