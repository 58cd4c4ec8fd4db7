# SPDX-License-Identifier: Apache-2.0
"""Root in a VM against its neighbours on the same compute host and behind the same daemons.

VMs 1 and 2 have the same address; VM 3 stands for a VM of another tenant (see `tests.kernel.rodvr.lab`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gsaas.objects.address import Address
from gsaas.rodvr.endpoint import Endpoint
from tests.kernel.rodvr import conftest as fixtures
from tests.kernel.rodvr.lab import COMPUTE_IP, G2, PORT, A, B, Lab

pytestmark = pytest.mark.kernel

lab, make_endpoint, endpoint = fixtures.lab, fixtures.make_endpoint, fixtures.endpoint

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
