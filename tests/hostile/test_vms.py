# SPDX-License-Identifier: Apache-2.0
"""Root in a VM against its neighbours on the same compute host and behind the same daemons.

VMs 1 and 2 have the same address; VM 3 stands for a VM of another tenant (see `tests.kernel.rodvr.lab`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from gsaas.objects.address import Address
from gsaas.rodvr.endpoint import Endpoint
from tests.hostile import packets
from tests.kernel.rodvr import conftest as fixtures
from tests.kernel.rodvr.lab import COMPUTE_IP, G2, PORT, VMS, A, B, Lab

pytestmark = pytest.mark.kernel

lab, make_endpoint, endpoint = fixtures.lab, fixtures.make_endpoint, fixtures.endpoint


def send(lab: Lab, vm: str, command: str, *arguments: object) -> None:
    """Have a VM send raw packets: a command of `packets`."""
    program = [sys.executable, "-SE", str(packets.__file__), command, *map(str, arguments)]
    lab.run(vm, *program)


# -- a GPU that the VM was not given --------------------------------------------------------------------


@pytest.fixture
def foreign_rules(lab: Lab) -> Iterator[None]:
    yield
    lab.nft("delete table ip foreign", check=False)
    lab.nft("delete table ip nat", check=False)


def translate_masked(lab: Lab, priority: int, to: Address = G2) -> None:
    """Have another program translate what VMs send to masked addresses."""
    lab.nft("add table ip foreign")
    chain = f"add chain ip foreign dstnat {{ type nat hook prerouting priority {priority}; }}"
    lab.run("cmp", "nft", chain)  # as one word: a negative number looks like an option
    lab.nft(f"add rule ip foreign dstnat ip daddr 169.254.71.0/24 tcp dport {PORT} dnat to {to}")


@pytest.mark.parametrize("priority", [-199, -101, -100, -99])
def test_a_foreign_rule_leads_no_vm_to_a_gpu_that_it_was_not_given(
    lab: Lab, endpoint: Endpoint, foreign_rules: None, priority: int
) -> None:
    """Whatever its priority, the least one that the kernel admits included."""
    translate_masked(lab, priority)

    assert lab.reaches("vm3", A) == "ConnectionRefusedError"
    assert lab.reaches("vm2", B) == "ConnectionRefusedError"
    assert lab.connections("-s", "240.71.0.3") == []
    assert endpoint.report().bindings["port-vm3"].unmapped == 1


def test_a_rule_of_iptables_leads_no_vm_to_a_gpu_that_it_was_not_given(
    lab: Lab, endpoint: Endpoint, foreign_rules: None
) -> None:
    rule = f"-d {A.ip} -p tcp --dport {PORT} -j DNAT --to-destination {G2}"
    lab.run("cmp", "iptables", "-t", "nat", "-I", "PREROUTING", *rule.split())

    assert lab.reaches("vm3", A) == "ConnectionRefusedError"
    assert lab.reaches("vm1", A) == "g1:8308"


def test_a_foreign_rule_leads_no_vm_to_a_service_of_the_compute_host(
    lab: Lab, endpoint: Endpoint, foreign_rules: None
) -> None:
    lab.daemon("cmp", "service", 8311)
    translate_masked(lab, -100, Address(COMPUTE_IP, 8311))

    assert lab.reaches("vm3", A) == "ConnectionRefusedError"


@pytest.mark.parametrize("priority", [-101, -99])
def test_a_foreign_rule_keeps_no_vm_from_its_own_gpu(
    lab: Lab, endpoint: Endpoint, foreign_rules: None, priority: int
) -> None:
    translate_masked(lab, priority)
    assert lab.reaches("vm1", A) == "g1:8308"


def test_a_connection_that_a_foreign_rule_leads_elsewhere_is_refused(
    lab: Lab, endpoint: Endpoint, foreign_rules: None
) -> None:
    """A chain of the least priority comes before RODVR's if it was made later: then no GPU is reached."""
    translate_masked(lab, -199)
    assert lab.reaches("vm1", A) == "ConnectionRefusedError"


# -- reassembly -----------------------------------------------------------------------------------------


LONE_FRAGMENTS = 4000
"""5.6 MB; the kernel keeps 4 MiB of fragments at most (net.ipv4.ipfrag_high_thresh)."""


def reassembly(lab: Lab) -> dict[str, int]:
    """The kernel's counters of reassembly on the compute host."""
    names, values = (
        line.split()[1:]
        for line in lab.run("cmp", "cat", "/proc/net/snmp").splitlines()
        if line.startswith("Ip:")
    )
    counted = dict(zip(names, map(int, values), strict=True))
    return {name: count for name, count in counted.items() if name.startswith("Reasm")}


def send_lone_fragments(lab: Lab, vm: str) -> None:
    send(lab, vm, "fragments", VMS[vm][2], A.ip, LONE_FRAGMENTS)


def test_lone_fragments_of_a_vm_reach_no_reassembly(lab: Lab, endpoint: Endpoint) -> None:
    before = reassembly(lab)

    send_lone_fragments(lab, "vm1")

    assert reassembly(lab) == before
    assert "FRAG: inuse 0 memory 0" in lab.run("cmp", "cat", "/proc/net/sockstat")
    assert endpoint.report().bindings["port-vm1"].refused == LONE_FRAGMENTS


def test_lone_fragments_of_a_vm_keep_no_other_fragments_from_the_compute_host(
    lab: Lab, endpoint: Endpoint
) -> None:
    send_lone_fragments(lab, "vm1")

    lab.run("g1", "ping", "-c", "1", "-W", "3", "-s", "4000", COMPUTE_IP)
    assert lab.reaches("vm3", A) == "ConnectionRefusedError"
    assert lab.transfer("vm1", A, 4) == "intact"


def test_fragments_to_other_addresses_are_the_business_of_the_vms_own_network(
    lab: Lab, endpoint: Endpoint
) -> None:
    lab.run("vm1", "ping", "-c", "1", "-W", "3", "-s", "4000", "10.0.0.6")
    assert endpoint.report().bindings["port-vm1"].refused == 0
