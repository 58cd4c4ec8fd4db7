# SPDX-License-Identifier: Apache-2.0
"""A port with several addresses, and what is said when a VM uses one that its port does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gsaas.objects.address import Address
from gsaas.rodvr.config import ConnectionLimits
from gsaas.rodvr.endpoint import Endpoint
from tests.kernel.rodvr.lab import G1, G2, USUAL, VMS, A, B, Lab, binding

pytestmark = pytest.mark.kernel

TAP, _, FIRST, _ = VMS["vm1"]
OTHERS = ("10.0.1.9", "10.0.2.9")
SEVERAL = {"other_ips": OTHERS}
CLOSED = Address(A.ip, 9)
"""Nothing is mapped there."""


@pytest.fixture
def several(lab: Lab, endpoint: Endpoint) -> Iterator[Endpoint]:
    """VM 1 has three addresses, and its port has them too."""
    report = endpoint.apply(binding("vm1", USUAL["vm1"], **SEVERAL))
    assert report.bindings["port-vm1"].installed
    with_addresses(lab)
    yield endpoint
    without_addresses(lab)


def with_addresses(lab: Lab) -> None:
    lab.ip("vm1", "; ".join(f"addr add {ip}/24 dev eth0" for ip in OTHERS))


def without_addresses(lab: Lab) -> None:
    lab.ip("vm1", "; ".join(f"addr del {ip}/24 dev eth0" for ip in OTHERS))


@pytest.mark.parametrize("source", [FIRST, *OTHERS])
def test_a_vm_reaches_its_daemons_from_every_address_of_its_port(
    lab: Lab, several: Endpoint, source: str
) -> None:
    assert lab.ask("vm1", A, source=source) == "g1:8308 peer=192.168.50.1"
    assert lab.ask("vm1", B, source=source) == "g2:8309 peer=192.168.50.1"
    assert several.report().problems == ()


def test_a_guest_whose_first_address_is_another_fixed_one_needs_no_setting(
    lab: Lab, several: Endpoint
) -> None:
    """It got its addresses in another order, and nothing says which one to use."""
    route = "169.254.71.0/24 dev eth0 scope link"
    lab.ip("vm1", f"addr flush dev eth0; addr add {OTHERS[0]}/24 dev eth0")
    lab.ip("vm1", f"addr add {FIRST}/24 dev eth0; route replace {route}")
    try:
        assert lab.reaches("vm1", A) == "g1:8308"
    finally:
        lab.ip("vm1", f"addr flush dev eth0; addr add {FIRST}/24 dev eth0; route replace {route}")
        lab.ip("vm1", "route replace default via 10.0.0.1")
        with_addresses(lab)


def test_equal_connections_from_two_addresses_do_not_meet(lab: Lab, several: Endpoint) -> None:
    """Same source port, destination address and port, at the same time."""
    talks = []
    for source in (FIRST, *OTHERS):
        talks.append(lab.talk("vm1", A, source_port=40000, source=source))
        assert talks[-1].line() == "g1:8308 peer=192.168.50.1"
    assert [talk.process.poll() for talk in talks] == [None] * 3
    for talk in talks:
        talk.process.terminate()


def test_the_mappings_of_a_port_hold_for_all_its_addresses(lab: Lab, several: Endpoint) -> None:
    waiting = lab.wait("vm1", A, source=OTHERS[0])
    assert waiting.line().startswith("g1:8308")
    several.apply(binding("vm1", {A: G2}, **SEVERAL))
    assert waiting.rest() == ["ConnectionResetError"]
    assert lab.ask("vm1", A, source=OTHERS[0]).startswith("g2:8308")
    assert lab.ask("vm1", B, source=OTHERS[0]) == "ConnectionRefusedError"


def test_another_address_disturbs_no_connection(lab: Lab, endpoint: Endpoint) -> None:
    talking = lab.send_on_signal("vm1", A)
    assert talking.line().startswith("g1:8308")
    endpoint.apply(binding("vm1", USUAL["vm1"], **SEVERAL))
    talking.signal()
    assert talking.line() == "answered"


def test_a_restarted_endpoint_adopts_all_addresses_and_changes_nothing(
    lab: Lab, several: Endpoint, make_endpoint: Any
) -> None:
    talking = lab.send_on_signal("vm1", A, source=OTHERS[1])
    assert talking.line().startswith("g1:8308")
    before = lab.map_elements("netdev", "sources")
    several.stop()
    restarted = make_endpoint()
    mappings = dict(USUAL)
    restarted.replace(
        binding(vm, mappings[vm], **(SEVERAL if vm == "vm1" else {})) for vm in mappings
    )
    assert lab.map_elements("netdev", "sources") == before
    talking.signal()
    assert talking.line() == "answered"


def test_what_is_left_of_a_removed_binding_refuses_every_address(
    lab: Lab, several: Endpoint
) -> None:
    """A reset, and no silence."""
    several.remove("port-vm1")
    for source in (FIRST, *OTHERS):
        assert lab.ask("vm1", A, source=source) == "ConnectionRefusedError"


def test_limits_are_those_of_the_port_and_not_of_each_address(lab: Lab, make_endpoint: Any) -> None:
    endpoint = make_endpoint(limits=ConnectionLimits(per_vm=2, per_daemon=2, new_per_second=0))
    endpoint.apply(binding("vm1", {A: G1}, **SEVERAL))
    with_addresses(lab)
    try:
        first = [lab.wait("vm1", A, source=source) for source in (FIRST, OTHERS[0])]
        assert all(peer.line().startswith("g1:8308") for peer in first)
        for source in (FIRST, *OTHERS):
            assert lab.ask("vm1", A, source=source) == "ConnectionRefusedError"
        for peer in first:
            peer.process.terminate()
    finally:
        without_addresses(lab)


def test_traffic_and_refusals_are_those_of_all_addresses(lab: Lab, several: Endpoint) -> None:
    for source in (FIRST, OTHERS[0]):
        assert lab.ask("vm1", A, source=source).startswith("g1:8308")
        assert lab.ask("vm1", CLOSED, source=source) == "ConnectionRefusedError"
    report = several.report(traffic=True)
    assert report.bindings["port-vm1"].unmapped == 2
    assert report.traffic["port-vm1"].sent > 0
    assert report.traffic["port-vm1"].received > 0


# -- what is refused is told ----------------------------------------------------------------------------


def test_a_vm_that_uses_a_foreign_address_is_a_problem_of_its_lease(
    lab: Lab, endpoint: Endpoint
) -> None:
    with_addresses(lab)
    try:
        assert lab.ask("vm1", A, source=OTHERS[0], seconds=0.3) == "TimeoutError"
    finally:
        without_addresses(lab)
    report = endpoint.report()
    refusals = report.refusals["port-vm1"]
    assert refusals.foreign == report.bindings["port-vm1"].refused > 0
    assert refusals.source == OTHERS[0]
    (problem,) = report.problems
    assert problem.startswith("lease lease-vm1, port port-vm1: ")
    assert f"from {OTHERS[0]}, which the VM's port does not have (it has {FIRST})" in problem
    (told,) = refusals.sentences([FIRST])
    assert told in problem


def test_each_kind_of_refusal_is_told_apart(lab: Lab, endpoint: Endpoint) -> None:
    assert not lab.ping("vm1", A.ip, 0.2)
    assert lab.ask("vm1", CLOSED) == "ConnectionRefusedError"
    refusals = endpoint.report().refusals["port-vm1"]
    assert (refusals.unmapped, refusals.foreign, refusals.not_tcp) == (1, 0, 1)
    assert endpoint.report().refusals.keys() == {"port-vm1"}


def test_what_is_not_refused_is_no_problem(lab: Lab, endpoint: Endpoint) -> None:
    assert lab.reaches("vm1", A) == "g1:8308"
    report = endpoint.report()
    assert (report.refusals, report.problems) == ({}, ())


def test_what_was_refused_before_a_restart_is_not_of_late(
    lab: Lab, endpoint: Endpoint, make_endpoint: Any
) -> None:
    assert lab.ask("vm1", CLOSED) == "ConnectionRefusedError"
    assert endpoint.report().refusals.keys() == {"port-vm1"}
    endpoint.stop()
    restarted = make_endpoint()
    restarted.replace(binding(vm, mappings) for vm, mappings in USUAL.items())
    assert restarted.report().refusals == {}
    assert lab.ask("vm1", CLOSED) == "ConnectionRefusedError"
    assert restarted.report().refusals["port-vm1"].unmapped == 1


def test_each_vm_with_refusals_is_one_problem(lab: Lab, endpoint: Endpoint) -> None:
    for vm in VMS:
        assert lab.ask(vm, CLOSED) == "ConnectionRefusedError"
    report = endpoint.report()
    assert report.refusals.keys() == {f"port-{vm}" for vm in VMS}
    assert len(report.problems) == len(VMS)
