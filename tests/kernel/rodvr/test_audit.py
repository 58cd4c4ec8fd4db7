# SPDX-License-Identifier: Apache-2.0
"""An endpoint that is asked says how the kernel differs from its bindings, and repairs it when it is told to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gsaas.objects.endpoint_audit import MISSING, SURPLUS, WRONG, EndpointAudit, KernelDifference
from gsaas.rodvr.differences import TABLES
from gsaas.rodvr.endpoint import Endpoint
from tests.kernel.rodvr.lab import GPU_HOSTS, PORT, USUAL, A, B, Lab, binding

pytestmark = pytest.mark.kernel

MAPPING = f"the mapping {A} of port port-vm1"


@pytest.fixture
def damaged(lab: Lab, make_endpoint: Any) -> Callable[..., EndpointAudit]:
    """Return what an endpoint says of a kernel in which somebody has run commands of nft just now."""
    endpoint: Endpoint = make_endpoint(protected=False)
    endpoint.replace(binding(vm, mappings) for vm, mappings in USUAL.items())

    def ask(*commands: str, repair: bool = False) -> EndpointAudit:
        with endpoint._lock:  # or it would notice, and repair it before it is asked
            for command in commands:
                lab.nft(command)
            told = endpoint.audit(repair=repair)
            return EndpointAudit.from_dict(told.to_dict())

    return ask


def identity_of(lab: Lab, vm: str) -> str:
    """The identity of a VM, of which the mapping of A is."""
    real = {"vm1": GPU_HOSTS["g1"], "vm2": GPU_HOSTS["g2"]}[vm]
    [identity] = {
        key["concat"][0]
        for key, value in lab.map_elements("ip", "real")
        if key["concat"][1] == A.ip and value["concat"][0] == real
    }
    return identity


def test_it_tells_its_bindings_and_no_difference_of_a_kernel_as_it_should_be(damaged: Any) -> None:
    told = damaged()
    assert list(told.bindings) == [binding(vm, mappings) for vm, mappings in USUAL.items()]
    assert told.kernel == ()


def test_a_map_element_is_missing(lab: Lab, damaged: Any) -> None:
    key = f"{identity_of(lab, 'vm1')} . {A.ip} . {PORT}"
    delete = f"delete element ip rodvr real {{ {key} }}"
    assert damaged(delete).kernel == (KernelDifference(MISSING, MAPPING),)


def test_a_map_element_is_nobodys(lab: Lab, damaged: Any) -> None:
    key = f"100.127.255.250 . {B.ip} . {PORT}"
    add = f"add element ip rodvr real {{ {key} : {GPU_HOSTS['g2']} . {PORT} }}"
    nobody = f"the mapping {B} of the identity 100.127.255.250, which is nobody's"
    assert damaged(add).kernel == (KernelDifference(SURPLUS, nobody),)


def test_a_map_element_leads_to_the_wrong_gpu(lab: Lab, damaged: Any) -> None:
    key = f"{identity_of(lab, 'vm1')} . {A.ip} . {PORT}"
    assert damaged(
        f"delete element ip rodvr real {{ {key} }}",
        f"add element ip rodvr real {{ {key} : {GPU_HOSTS['g2']} . {PORT} }}",
    ).kernel == (KernelDifference(WRONG, MAPPING),)


def test_a_chain_is_missing(lab: Lab, damaged: Any) -> None:
    flushed = damaged("flush ruleset")
    assert TABLES in flushed.kernel
    assert KernelDifference(MISSING, MAPPING) in flushed.kernel


def test_it_repairs_what_it_tells_if_it_is_told_to(lab: Lab, damaged: Any) -> None:
    key = f"{identity_of(lab, 'vm1')} . {A.ip} . {PORT}"
    told = damaged(
        f"delete element ip rodvr real {{ {key} }}",
        f"add element ip rodvr real {{ {key} : {GPU_HOSTS['g2']} . {PORT} }}",
        repair=True,
    )
    assert [each.how for each in told.kernel] == [WRONG]
    assert damaged().kernel == ()
    assert lab.reaches("vm1", A) == f"g1:{PORT}"
