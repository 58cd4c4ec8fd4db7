# SPDX-License-Identifier: Apache-2.0
"""When a mapping is changed or removed, its connections end at once, and no others do."""

from __future__ import annotations

from typing import Any

import pytest

from gsaas.objects.address import Address
from gsaas.rodvr.config import DatapathConfig
from gsaas.rodvr.endpoint import Endpoint
from gsaas.rodvr.kernel import Datapath
from gsaas.rodvr.plan import DeleteMappings
from tests.kernel.rodvr.lab import G1, G2, G2_OTHER, USUAL, A, B, Lab, binding, eventually

pytestmark = pytest.mark.kernel

RESET = ["ConnectionResetError"]
MOVED = {A: G2, B: G2_OTHER}


@pytest.fixture(params=[True, False], ids=["filtered", "by walking the table"])
def endpoint(make_endpoint: Any, request: pytest.FixtureRequest) -> Endpoint:
    """Cuts by filter, and connection by connection as on kernels before 6.8."""
    endpoint = make_endpoint(filtered_cuts=request.param)
    endpoint.replace(binding(vm, mappings) for vm, mappings in USUAL.items())
    return endpoint


def test_moving_a_mapping_resets_its_connections(lab: Lab, endpoint: Endpoint) -> None:
    talk = lab.talk("vm1", A)
    assert talk.line().startswith("g1:8308")
    endpoint.apply(binding("vm1", MOVED))
    assert talk.rest() == RESET
    assert lab.reaches("vm1", A) == "g2:8308"


def test_a_client_that_only_waits_is_reset_too(lab: Lab, endpoint: Endpoint) -> None:
    """It has nothing to send, so it would not notice by itself; most CUDA clients wait like that."""
    waiting = lab.wait("vm1", A)
    assert waiting.line().startswith("g1:8308")
    endpoint.apply(binding("vm1", MOVED))
    assert waiting.rest() == RESET


def test_a_waiting_client_of_a_removed_binding_is_reset(lab: Lab, endpoint: Endpoint) -> None:
    waiting = lab.wait("vm1", A)
    waiting.line()
    endpoint.remove("port-vm1")
    assert waiting.rest() == RESET


def test_moving_a_mapping_leaves_all_other_connections(lab: Lab, endpoint: Endpoint) -> None:
    """Neither the VM's other masked address nor the other VM's same one."""
    others = [lab.talk("vm1", B, 50), lab.talk("vm2", A, 50)]
    assert [talk.line().split()[0] for talk in others] == ["g2:8309", "g2:8308"]
    endpoint.apply(binding("vm1", MOVED))
    assert [talk.rest() for talk in others] == [["survived"], ["survived"]]


@pytest.mark.parametrize("mappings", [MOVED, {B: G2_OTHER}], ids=["moved", "removed"])
def test_a_daemon_that_only_waits_is_reset_too(
    lab: Lab, endpoint: Endpoint, mappings: dict[Address, Address]
) -> None:
    """It goes on for other leases of the host, and many serve one program after the other."""
    before = lab.established("g1", 8308)
    waiting = lab.wait("vm1", A)
    waiting.line()
    own = lab.established("g1", 8308) - before
    assert own
    endpoint.apply(binding("vm1", mappings))
    assert waiting.rest() == RESET
    eventually(lambda: not own & lab.established("g1", 8308))


def test_a_connection_that_is_over_is_not_begun_again(lab: Lab, endpoint: Endpoint) -> None:
    """The kernel remembers it for a while."""

    def begun() -> str:
        names, values = lab.run("g1", "grep", "^Tcp:", "/proc/net/snmp").splitlines()
        return dict(zip(names.split(), values.split(), strict=True))["PassiveOpens"]

    assert lab.reaches("vm1", A) == "g1:8308"
    before = begun()
    endpoint.apply(binding("vm1", {}))
    assert lab.reaches("vm1", A) == "ConnectionRefusedError"
    assert begun() == before


def test_taking_a_mapping_away_resets_its_connections(lab: Lab, endpoint: Endpoint) -> None:
    talk = lab.talk("vm1", A)
    talk.line()
    endpoint.apply(binding("vm1", {B: G2_OTHER}))
    assert talk.rest() == RESET
    assert lab.reaches("vm1", A) == "ConnectionRefusedError"


def test_removing_a_binding_resets_its_connections(lab: Lab, endpoint: Endpoint) -> None:
    talk = lab.talk("vm1", A)
    talk.line()
    assert endpoint.remove("port-vm1").bindings == {}
    assert talk.rest() == RESET


def test_a_removed_binding_reaches_nothing_from_that_moment(lab: Lab, endpoint: Endpoint) -> None:
    lab.ask("vm1", A)
    endpoint.remove("port-vm1")
    assert lab.reaches("vm1", A) == "ConnectionRefusedError"
    assert lab.connections("-s", "240.71.0.1") == []
    identities = [element[0]["concat"][0] for element in lab.map_elements("ip", "real")]
    assert identities == ["240.71.0.2"]


def test_a_removed_binding_leaves_no_trace_after_its_grace_period(
    lab: Lab, make_endpoint: Any
) -> None:
    endpoint = make_endpoint(grace=0.5)
    endpoint.replace([binding("vm1", USUAL["vm1"])])
    lab.ask("vm1", A)
    endpoint.remove("port-vm1")
    eventually(lambda: "tap11111111-11" not in str(lab.ruleset()))
    eventually(lambda: "240.71.0.1" not in str(lab.ruleset()))
    assert lab.connections("-s", "240.71.0.1") == []


def test_removing_one_binding_leaves_the_others(lab: Lab, endpoint: Endpoint) -> None:
    talk = lab.talk("vm2", A, 30)
    talk.line()
    endpoint.remove("port-vm1")
    assert talk.rest() == ["survived"]
    assert lab.reaches("vm2", A) == "g2:8308"


def test_removing_twice_or_what_never_existed_is_no_error(lab: Lab, endpoint: Endpoint) -> None:
    reports = [endpoint.remove(port) for port in ("port-vm1", "port-vm1", "port-unheard-of")]
    assert [(report.bindings, report.problems) for report in reports] == [({}, ())] * 3


def test_a_binding_may_return_during_its_grace_period(lab: Lab, endpoint: Endpoint) -> None:
    endpoint.remove("port-vm1")
    assert endpoint.apply(binding("vm1", {A: G1})).bindings["port-vm1"].installed
    assert lab.reaches("vm1", A) == "g1:8308"


def test_an_unknown_connection_is_reset_at_once(lab: Lab, endpoint: Endpoint) -> None:
    """The host has lost its connection table, or the VM has just migrated in."""
    client = lab.send_on_signal("vm1", A)
    client.line()
    lab.run("cmp", "conntrack", "-F")
    client.signal()
    assert client.rest() == RESET


def test_connections_an_endpoint_died_before_cutting_are_cut_by_the_next(
    lab: Lab, endpoint: Endpoint, make_endpoint: Any
) -> None:
    talk = lab.talk("vm1", A)
    talk.line()
    endpoint.stop()
    _delete_mapping_and_die(lab)
    assert talk.process.poll() is None
    usual = {**USUAL, "vm1": {B: G2_OTHER}}
    make_endpoint().replace(binding(vm, mappings) for vm, mappings in usual.items())
    assert talk.rest() == RESET


def _delete_mapping_and_die(lab: Lab) -> None:
    """What an endpoint does up to the moment before it cuts."""
    datapath = Datapath(DatapathConfig("gpu0", lab.compute))
    assert datapath.prepare()
    datapath.apply([DeleteMappings("240.71.0.1", (A,))])
    datapath.close()
