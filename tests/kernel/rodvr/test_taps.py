# SPDX-License-Identifier: Apache-2.0
"""Taps appear, disappear and appear again; the endpoint gets events of the kernel and needs no call."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from gsaas.rodvr.endpoint import Endpoint
from tests.kernel.rodvr.lab import G1, G2, USUAL, VMS, A, Lab, binding, eventually
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.kernel

TAP = VMS["vm1"][0]


@pytest.fixture
def installed() -> queue.Queue[str]:
    return queue.Queue()


@pytest.fixture
def endpoint(make_endpoint: Any, installed: queue.Queue[str]) -> Endpoint:
    endpoint = make_endpoint(on_installed=installed.put)
    endpoint.replace(binding(vm, mappings) for vm, mappings in USUAL.items())
    return endpoint


@pytest.fixture
def without_tap(lab: Lab) -> Iterator[None]:
    """VM 1 is shut off during the test, and runs again after it."""
    lab.unplug("vm1")
    yield
    if TAP in str(lab.ip_json("cmp", "link")):
        lab.unplug("vm1")
    lab.boot("vm1")


def test_a_binding_waits_for_its_tap(
    lab: Lab, without_tap: None, endpoint: Endpoint, installed: queue.Queue[str]
) -> None:
    waiting = endpoint.report()
    assert not waiting.bindings["port-vm1"].installed
    assert waiting.problems == ()
    lab.boot("vm1")
    assert installed.get(timeout=PATIENCE) == "port-vm1"
    assert lab.reaches("vm1", A) == "g1:8308"
    assert endpoint.report().bindings["port-vm1"].installed


def test_what_a_call_installs_is_in_its_report_and_not_announced(
    lab: Lab, endpoint: Endpoint, installed: queue.Queue[str]
) -> None:
    assert endpoint.apply(binding("vm1", {A: G2})).bindings["port-vm1"].installed
    assert installed.empty()


def test_a_tap_that_disappears_takes_its_rules_along(
    lab: Lab, endpoint: Endpoint, without_tap: None
) -> None:
    eventually(lambda: not endpoint.report().bindings["port-vm1"].installed)
    assert TAP not in str(lab.ruleset())
    assert "240.71.0.1" not in str(lab.ruleset())
    assert lab.reaches("vm2", A) == "g2:8308"


def test_a_hard_reboot_needs_no_call(
    lab: Lab, endpoint: Endpoint, installed: queue.Queue[str], without_tap: None
) -> None:
    """The tap appears again under its old name, with another index."""
    # A tap that is already back when the endpoint notices that it was gone is not announced.
    eventually(lambda: not endpoint.report().bindings["port-vm1"].installed)
    for _ in range(3):
        lab.boot("vm1")
        assert installed.get(timeout=PATIENCE) == "port-vm1"
        assert lab.reaches("vm1", A) == "g1:8308"
        lab.unplug("vm1")
        eventually(lambda: not endpoint.report().bindings["port-vm1"].installed)


def test_a_reboot_that_is_over_when_it_is_noticed_is_not_announced(
    lab: Lab, endpoint: Endpoint, installed: queue.Queue[str]
) -> None:
    """The binding was installed before and is installed after it, so the listener learns nothing new."""
    with endpoint._lock:  # so that the endpoint notices both events at once
        lab.unplug("vm1")
        lab.boot("vm1")
    eventually(lambda: lab.reaches("vm1", A) == "g1:8308")
    assert endpoint.report().bindings["port-vm1"].installed
    assert installed.empty()


@pytest.mark.parametrize("noticed", ["at once", "when it is over"])
def test_a_hard_reboot_ends_the_vms_connections_at_their_daemons(
    lab: Lab, endpoint: Endpoint, noticed: str
) -> None:
    """The VM does not say that they are over, and a daemon may serve one program after the other."""
    before = lab.established("g1", 8308)
    lab.wait("vm1", A).line()
    own = lab.established("g1", 8308) - before
    assert own
    with endpoint._lock if noticed == "when it is over" else nullcontext():
        lab.unplug("vm1")
        lab.boot("vm1")
    eventually(lambda: lab.reaches("vm1", A) == "g1:8308")
    eventually(lambda: not own & lab.established("g1", 8308))


def test_a_port_keeps_its_identity_through_a_reboot(
    lab: Lab, endpoint: Endpoint, installed: queue.Queue[str], without_tap: None
) -> None:
    eventually(lambda: not endpoint.report().bindings["port-vm1"].installed)
    lab.boot("vm1")
    assert installed.get(timeout=PATIENCE) == "port-vm1"
    assert "240.71.0.1" in lab.nft("list map netdev rodvr back")


def test_a_renamed_tap_is_no_tap(lab: Lab, endpoint: Endpoint, installed: queue.Queue[str]) -> None:
    lab.ip("cmp", f"link set {TAP} down; link set {TAP} name elsewhere")
    eventually(lambda: not endpoint.report().bindings["port-vm1"].installed)
    lab.ip("cmp", f"link set elsewhere name {TAP}; link set {TAP} up")
    assert installed.get(timeout=PATIENCE) == "port-vm1"
    assert lab.reaches("vm1", A) == "g1:8308"


def test_bridge_notifications_mean_nothing(
    lab: Lab, endpoint: Endpoint, installed: queue.Queue[str]
) -> None:
    """A port that leaves its bridge is announced as a deleted link, of another family."""
    lab.ip("cmp", f"link set {TAP} nomaster; link set {TAP} master br-a")
    endpoint.apply(binding("vm2", {A: G1}))
    assert endpoint.report().bindings["port-vm1"].installed
    assert installed.empty()
    assert lab.reaches("vm1", A) == "g1:8308"


def test_a_binding_may_move_to_another_tap(lab: Lab, endpoint: Endpoint, without_tap: None) -> None:
    """The port gets another tap; the rules on the old one are removed."""
    lab.boot("vm1")
    moved = binding("vm3", {A: G1}, port_id="port-vm1")
    endpoint.remove("port-vm3")
    assert endpoint.apply(moved).bindings["port-vm1"].installed
    assert lab.reaches("vm3", A) == "g1:8308"
    assert f"in-{TAP}" not in str(lab.ruleset())


def test_a_listener_that_fails_is_survived(lab: Lab, without_tap: None, make_endpoint: Any) -> None:
    def fail(port_id: str) -> None:
        raise RuntimeError(port_id)

    endpoint = make_endpoint(on_installed=fail)
    endpoint.replace([binding("vm1", {A: G1})])
    lab.boot("vm1")
    eventually(lambda: endpoint.report().bindings["port-vm1"].installed)
    endpoint.apply(binding("vm1", {A: G2}))
    assert lab.reaches("vm1", A) == "g2:8308"


def test_a_listener_may_call_the_endpoint(
    lab: Lab, without_tap: None, make_endpoint: Any, installed: queue.Queue[str]
) -> None:
    def apply_another(port_id: str) -> None:
        endpoint.apply(binding("vm1", {A: G2}))
        installed.put(port_id)

    endpoint = make_endpoint(on_installed=apply_another)
    endpoint.replace([binding("vm1", {A: G1})])
    lab.boot("vm1")
    assert installed.get(timeout=PATIENCE) == "port-vm1"
    assert lab.reaches("vm1", A) == "g2:8308"
