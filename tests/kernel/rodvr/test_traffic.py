# SPDX-License-Identifier: Apache-2.0
"""What a VM sends and receives over the masked path is counted, for each VM by itself."""

from __future__ import annotations

import ipaddress
import json

import pytest

from gsaas.objects.endpoint_report import Traffic
from gsaas.rodvr.endpoint import Endpoint
from tests.kernel.rodvr.lab import G1, VMS, A, B, Lab, binding, eventually

pytestmark = pytest.mark.kernel

MIB = 2**20


def traffic(endpoint: Endpoint, vm: str) -> Traffic:
    return endpoint.report(traffic=True).traffic[f"port-{vm}"]


def counted_by_kernel(lab: Lab, vm: str) -> tuple[int, int]:
    """Return the bytes that nft lists: of the tap's rules that carry packets, and of the VM's element of `back`."""
    tap = VMS[vm][0]
    listed = json.loads(lab.nft("-j list table netdev rodvr"))["nftables"]
    rules = [
        entry["rule"]["expr"]
        for entry in listed
        if "rule" in entry and entry["rule"]["chain"] == f"in-{tap}"
    ]
    _arp, _limit, first, other, *_refusals = rules
    sent = sum(part["counter"]["bytes"] for part in [*first, *other] if "counter" in part)
    maps = (entry["map"] for entry in listed if "map" in entry)
    (back,) = (found for found in maps if found["name"] == "back")
    (received,) = (
        key["elem"]["counter"]["bytes"] for key, value in back["elem"] if tap in value["concat"]
    )
    return sent, received


def test_real_bytes_are_counted_in_both_directions_as_nft_lists_them(
    lab: Lab, endpoint: Endpoint
) -> None:
    before = traffic(endpoint, "vm1")
    assert lab.transfer("vm1", A, 8) == "intact"
    after = traffic(endpoint, "vm1")

    # The daemon sends everything back. Headers of packets come on top, and acknowledgements.
    for grown in (after.sent - before.sent, after.received - before.received):
        assert 8 * MIB < grown < 9 * MIB
    assert (after.sent, after.received) == counted_by_kernel(lab, "vm1")


def test_the_bytes_of_one_vm_are_not_those_of_another(lab: Lab, endpoint: Endpoint) -> None:
    """VMs 1 and 2 even have the same IP and MAC."""
    before = traffic(endpoint, "vm2")
    assert lab.transfer("vm1", A, 1) == "intact"
    assert traffic(endpoint, "vm2") == before


def test_open_connections_are_counted_and_closed_ones_are_not(lab: Lab, endpoint: Endpoint) -> None:
    """The kernel tracks a connection for two minutes after it was closed."""
    waiting = [lab.wait("vm1", masked) for masked in (A, A, B)]
    eventually(lambda: traffic(endpoint, "vm1").connections == 3)
    assert traffic(endpoint, "vm2").connections == 0
    ports = [binding(name, {A: G1}).port_id for name in ("vm1", "vm2")]
    assert [endpoint.connections(port_id) for port_id in ports] == [3, 0]
    assert endpoint.connections("no such port") == 0

    for peer in waiting:
        peer.process.terminate()
        peer.process.wait()
    eventually(lambda: endpoint.connections(ports[0]) == 0)
    assert traffic(endpoint, "vm1").connections == 0


def test_connections_of_others_are_not_counted(lab: Lab, endpoint: Endpoint) -> None:
    lab.ping("vm1", "10.0.0.1")
    network = ipaddress.IPv4Network("240.71.0.0/16")
    counts = endpoint._kernel.datapath.open_connections()
    assert all(ipaddress.IPv4Address(identity) in network for identity in counts)


def test_a_vm_that_gets_another_mapping_keeps_its_count(lab: Lab, endpoint: Endpoint) -> None:
    assert lab.transfer("vm1", A, 1) == "intact"
    before = traffic(endpoint, "vm1")
    endpoint.apply(binding("vm1", {A: G1}))
    after = traffic(endpoint, "vm1")
    assert (after.sent, after.received) >= (before.sent, before.received)


def test_a_report_without_traffic_has_none(endpoint: Endpoint) -> None:
    assert endpoint.report().traffic == {}
