# SPDX-License-Identifier: Apache-2.0
"""Which binding owns a tap, and what stays of one that was removed: without a kernel."""

from __future__ import annotations

import ipaddress
from dataclasses import replace

import pytest

from gsaas.objects.address import Address
from gsaas.objects.binding import Binding
from gsaas.objects.endpoint_report import Traffic
from gsaas.rodvr import plan
from gsaas.rodvr.plan import Attachment, ChainTag, DatapathState
from gsaas.rodvr.port_bindings import PortBindings, Wanted
from gsaas.rodvr.recent_refusals import RefusalCounts

A, G1 = Address("169.254.71.1", 8308), Address("192.0.2.11", 8308)
MAC, IP = "fa:16:3e:00:00:05", "10.0.0.5"
TAG = ChainTag("240.71.0.1", 5, MAC, IP, "port-1")
INDEXES = {"tap1": 5, "tap2": 6}
NOW = 1000.0


def binding(port_id: str = "port-1", tap: str = "tap1") -> Binding:
    return Binding(port_id, "lease-1", tap, MAC, IP, {A: G1})


def state_with(tap: str, attachment: Attachment) -> DatapathState:
    state = DatapathState()
    state.commit(plan.attach(state, tap, attachment).operations)
    return state


@pytest.fixture
def ports() -> PortBindings:
    return PortBindings(ipaddress.IPv4Network("240.71.0.0/29"), 60.0)


def test_the_latest_binding_owns_a_tap_and_the_other_is_a_problem(ports: PortBindings) -> None:
    assert ports.put(binding())
    assert not ports.put(binding("port-2"))
    assert ports.owner("tap1") == "port-2"
    wanted = ports.plan_all(DatapathState(), INDEXES.get, NOW)
    assert [attachment.tag.port_id for attachment in wanted.attachments.values()] == ["port-2"]
    assert wanted.refused == {"port-1": "port port-1: its tap tap1 belongs to port port-2"}


def test_a_tap_that_is_released_belongs_to_the_other_binding_that_names_it(
    ports: PortBindings,
) -> None:
    ports.put(binding())
    ports.put(binding("port-2"))
    assert ports.discard("port-2")
    assert ports.owner("tap1") == "port-1"
    assert not ports.discard("port-1")
    assert ports.owner("tap1") is None


def test_a_binding_that_moves_releases_its_former_tap(ports: PortBindings) -> None:
    ports.put(binding())
    assert not ports.put(binding(tap="tap2"))
    assert (ports.owner("tap1"), ports.owner("tap2")) == (None, "port-1")


def test_unknown_chains_stay_until_all_bindings_are_known(ports: PortBindings) -> None:
    found = Attachment(TAG, {A: G1})
    state = state_with("tap1", found)
    assert ports.plan_all(state, INDEXES.get, NOW) == Wanted({"tap1": found}, {"tap1"})
    ports.replace([])
    assert ports.plan_all(state, INDEXES.get, NOW) == Wanted({"tap1": Attachment(TAG)}, set())
    assert ports.in_grace("tap1")


def test_the_grace_of_a_tap_that_disappears_ends(ports: PortBindings) -> None:
    state = state_with("tap1", Attachment(TAG, {A: G1}))
    ports.replace([])
    ports.plan_all(state, INDEXES.get, NOW)
    assert ports.plan_all(state, {"tap1": 7}.get, NOW) == Wanted({}, set())
    assert not ports.in_grace("tap1")


def test_a_binding_without_its_tap_waits_and_is_not_installed(ports: PortBindings) -> None:
    ports.replace([binding()])
    wanted = ports.plan_all(DatapathState(), {}.get, NOW)
    assert ports.installed(DatapathState(), wanted.attachments) == {"port-1": False}
    assert not wanted.refused


def test_a_binding_is_installed_once_its_tap_has_all_that_is_wanted(ports: PortBindings) -> None:
    ports.replace([binding()])
    wanted = ports.plan_all(DatapathState(), INDEXES.get, NOW)
    assert ports.installed(DatapathState(), wanted.attachments) == {"port-1": False}
    state = state_with("tap1", wanted.attachments["tap1"])
    assert ports.installed(state, wanted.attachments) == {"port-1": True}


def test_the_chain_of_a_removed_binding_stays_for_its_grace_period(ports: PortBindings) -> None:
    ports.replace([binding()])
    state = state_with("tap1", Attachment(TAG, {A: G1}))
    ports.discard("port-1")
    assert ports.start_grace("port-1", state, NOW) == [("tap1", TAG)]
    assert ports.grace_deadlines() == [NOW + 60]
    assert ports.expired_taps(NOW + 59) == []
    assert ports.expired_taps(NOW + 60) == ["tap1"]


def test_an_identity_is_unused_once_its_chain_is_gone(ports: PortBindings) -> None:
    ports.replace([binding()])
    wanted = ports.plan_all(DatapathState(), INDEXES.get, NOW)
    state = state_with("tap1", wanted.attachments["tap1"])
    ports.discard("port-1")
    assert ports.unused_identities(state) == []
    assert ports.unused_identities(DatapathState()) == [("240.71.0.1", ("port-1", ""))]


def test_further_addresses_get_identities_and_lose_them_when_they_are_taken_away(
    ports: PortBindings,
) -> None:
    ports.replace([replace(binding(), other_ips=("10.0.1.9",))])
    wanted = ports.plan_all(DatapathState(), INDEXES.get, NOW)
    assert wanted.attachments["tap1"].sources == {"10.0.1.9": "240.71.0.2"}
    state = state_with("tap1", wanted.attachments["tap1"])
    ports.put(binding())
    assert ports.unused_identities(state) == []
    change, _ = ports.plan_port("port-1", state, INDEXES.get)
    state.commit(change.operations)
    assert ports.unused_identities(state) == [("240.71.0.2", ("port-1", "10.0.1.9"))]


def test_a_restarted_endpoint_gives_each_address_the_identity_that_it_has(
    ports: PortBindings,
) -> None:
    found = Attachment(TAG, {A: G1}, {"10.0.1.8": "240.71.0.5", "10.0.1.9": "240.71.0.4"})
    state = state_with("tap1", found)
    ports.replace([replace(binding(), other_ips=("10.0.1.9", "10.0.1.8"))])
    assert ports.plan_all(state, INDEXES.get, NOW).attachments == {"tap1": found}


def test_a_port_reports_the_sum_over_its_addresses(ports: PortBindings) -> None:
    ports.replace([replace(binding(), other_ips=("10.0.1.9",))])
    ports.plan_all(DatapathState(), INDEXES.get, NOW)
    first, other = "240.71.0.1", "240.71.0.2"
    counted = ports.refusals({first: 2, other: 3}, {"tap1": RefusalCounts(foreign=4, not_tcp=1)})
    assert counted == {"port-1": RefusalCounts(5, 4, 1)}
    report = ports.reports(["port-1"], lambda _: 0.1, counted)["port-1"]
    assert (report.unmapped, report.refused) == (5, 5)
    traffic = ports.traffic({"tap1": 10}, {first: 20, other: 30}, {other: 1})
    assert traffic == {"port-1": Traffic(10, 50, 1)}
