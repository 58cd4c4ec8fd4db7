# SPDX-License-Identifier: Apache-2.0
"""A VM reaches nothing else, cannot use the address of another VM, and its refused packets are counted."""

from __future__ import annotations

import pytest

from gsaas.rodvr.endpoint import Endpoint
from tests.kernel.rodvr.lab import A, B, Lab, eventually

pytestmark = pytest.mark.kernel


def dropped(endpoint: Endpoint, vm: str) -> dict[str, int]:
    return endpoint.report().to_dict()["bindings"][f"port-{vm}"]["dropped_packets"]


def test_a_masked_address_without_mapping_is_answered_with_a_reset(
    lab: Lab, endpoint: Endpoint
) -> None:
    assert lab.reaches("vm2", B) == "ConnectionRefusedError"


def test_a_vm_without_mappings_is_refused_what_its_neighbour_may(
    lab: Lab, endpoint: Endpoint
) -> None:
    assert lab.reaches("vm3", A) == "ConnectionRefusedError"


def test_refusals_are_counted_for_the_vm_that_asked(lab: Lab, endpoint: Endpoint) -> None:
    lab.ask("vm2", B)
    lab.ask("vm3", A)
    lab.ask("vm3", A)
    counted = {e["elem"]["val"]: e["elem"]["counter"] for e in lab.elements("ip", "unmapped")}
    assert {ip: counter["packets"] for ip, counter in counted.items()} == {
        "240.71.0.2": 1,
        "240.71.0.3": 2,
    }
    assert [dropped(endpoint, vm) for vm in ("vm1", "vm2", "vm3")] == [
        {"unmapped": 0, "refused": 0},
        {"unmapped": 1, "refused": 0},
        {"unmapped": 2, "refused": 0},
    ]


@pytest.mark.parametrize("source", ["10.0.0.5", "240.71.0.1"], ids=["address", "identity"])
def test_a_forged_source_gets_nowhere_and_is_counted(
    lab: Lab, endpoint: Endpoint, source: str
) -> None:
    """VM 3 pretends to be VM 1, by the address tenants see and by the one only the host knows."""
    lab.ip("vm3", f"addr add {source}/32 dev eth0")
    try:
        assert lab.ask("vm3", A, source=source, seconds=0.3) == "TimeoutError"
    finally:
        lab.ip("vm3", f"addr del {source}/32 dev eth0")
    counted = lab.counter("netdev", "in-tap33333333-33", -1)
    assert counted > 0
    assert dropped(endpoint, "vm3") == {"unmapped": 0, "refused": counted}
    assert dropped(endpoint, "vm1") == {"unmapped": 0, "refused": 0}


def test_icmp_to_a_masked_address_is_dropped_at_the_tap(lab: Lab, endpoint: Endpoint) -> None:
    assert not lab.ping("vm1", A.ip, 0.2)
    assert dropped(endpoint, "vm1") == {"unmapped": 0, "refused": 1}


def test_udp_to_a_masked_address_is_dropped_at_the_tap(lab: Lab, endpoint: Endpoint) -> None:
    send = f"import socket; socket.socket(2, 2).sendto(b'x', ('{A.ip}', {A.port}))"
    lab.run("vm1", "python3", "-c", send)
    eventually(lambda: dropped(endpoint, "vm1") == {"unmapped": 0, "refused": 1})


def test_the_gpu_network_cannot_open_connections_to_vms(lab: Lab, endpoint: Endpoint) -> None:
    lab.ip("g1", "route add 240.71.0.0/16 via 192.168.50.1")
    try:
        assert not lab.ping("g1", "240.71.0.1", 0.2)
        to_vm = 5
        assert lab.counter("ip", "forward", to_vm) == 1
    finally:
        lab.ip("g1", "route del 240.71.0.0/16")


def test_the_compute_host_does_not_route_for_the_gpu_network(lab: Lab, endpoint: Endpoint) -> None:
    lab.ip("g1", "route add 10.0.0.0/24 via 192.168.50.1")
    try:
        assert not lab.ping("g1", "10.0.0.5", 0.2)
        assert lab.counter("ip", "forward", -1) == 1
    finally:
        lab.ip("g1", "route del 10.0.0.0/24")


def test_identities_do_not_leave_the_host(lab: Lab, endpoint: Endpoint) -> None:
    assert lab.ask("vm1", A).endswith("peer=192.168.50.1")
    assert "240.71" not in lab.run("g1", "ss", "-Htn", "state", "all")
