# SPDX-License-Identifier: Apache-2.0
"""Restarts, interference and hand-made damage: the endpoint finds out and puts it right."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from gsaas.rodvr.config import DatapathConfig
from gsaas.rodvr.endpoint import Endpoint, NotRemoved
from tests.kernel.rodvr.lab import (
    G1,
    G2,
    G2_OTHER,
    USUAL,
    A,
    B,
    Lab,
    RulesetMonitor,
    binding,
    eventually,
)

pytestmark = pytest.mark.kernel


def usual() -> list[Any]:
    return [binding(vm, mappings) for vm, mappings in USUAL.items()]


@pytest.fixture
def unprotected(make_endpoint: Any) -> Endpoint:
    """As on kernels without table owners."""
    endpoint = make_endpoint(protected=False)
    endpoint.replace(usual())
    return endpoint


def test_applying_again_changes_nothing(lab: Lab, endpoint: Endpoint) -> None:
    with RulesetMonitor(lab) as monitor:
        endpoint.apply(binding("vm1", USUAL["vm1"]))
        endpoint.replace(usual())
        assert monitor.changes() == []


def test_a_restarted_endpoint_adopts_all_and_changes_nothing(
    lab: Lab, endpoint: Endpoint, make_endpoint: Any
) -> None:
    talk = lab.talk("vm1", A, 40)
    talk.line()
    endpoint.stop()
    with RulesetMonitor(lab) as monitor:
        restarted = make_endpoint()
        report = restarted.replace(usual())
        # Taking a table over is announced as a new table; everything in it stays.
        changes = [line for line in monitor.changes() if not line.startswith("add table")]
        assert changes == []
    assert report.to_dict()["bindings"]["port-vm1"]["installed"]
    assert talk.rest() == ["survived"]


def test_connections_do_not_need_the_endpoint(lab: Lab, endpoint: Endpoint) -> None:
    talk = lab.talk("vm1", A, 40)
    talk.line()
    endpoint.stop()
    assert lab.reaches("vm1", A) == "g1:8308"
    assert talk.rest() == ["survived"]


def test_a_restarted_endpoint_keeps_what_it_does_not_know_until_replace(
    lab: Lab, endpoint: Endpoint, make_endpoint: Any
) -> None:
    endpoint.stop()
    restarted = make_endpoint(grace=0)
    restarted.apply(binding("vm2", {A: G1}))
    assert [lab.reaches("vm1", A), lab.reaches("vm2", A)] == ["g1:8308", "g1:8308"]
    restarted.replace([binding("vm2", {A: G1})])
    assert not lab.ask("vm1", A, seconds=0.3).startswith("g1")
    eventually(lambda: "tap11111111-11" not in str(lab.ruleset()))


def test_what_a_former_endpoint_left_is_removed_when_it_is_not_wanted(
    lab: Lab, endpoint: Endpoint, make_endpoint: Any
) -> None:
    endpoint.stop()
    make_endpoint(grace=0.2).replace([])
    assert lab.map_elements("ip", "real") == []
    eventually(lambda: "in-tap" not in str(lab.ruleset()))
    assert lab.map_elements("netdev", "back") == []


def test_others_cannot_flush_or_change_the_tables(lab: Lab, endpoint: Endpoint) -> None:
    lab.nft("flush ruleset")
    assert lab.reaches("vm1", A) == "g1:8308"
    for command in ("delete table ip rodvr", "flush chain ip rodvr guard"):
        with pytest.raises(AssertionError, match="Operation not permitted"):
            lab.nft(command)


def test_tables_stay_without_their_endpoint_and_are_protected_again_by_the_next(
    lab: Lab, endpoint: Endpoint, make_endpoint: Any
) -> None:
    endpoint.stop()
    assert lab.reaches("vm1", A) == "g1:8308"
    restarted = make_endpoint()
    lab.nft("flush ruleset")
    assert lab.reaches("vm1", A) == "g1:8308"
    restarted.replace(usual())
    assert lab.reaches("vm2", A) == "g2:8308"


def test_a_second_endpoint_on_a_host_leaves_the_first_alone_and_says_so(
    lab: Lab, endpoint: Endpoint, make_endpoint: Any
) -> None:
    second = make_endpoint()
    (problem,) = second.report().problems
    assert "belong to another process" in problem
    with pytest.raises(NotRemoved, match="port-vm1 may still be connected on cmp"):
        second.remove("port-vm1")
    assert lab.reaches("vm1", A) == "g1:8308"
    endpoint.stop()
    second.replace(usual())
    assert second.report().problems == ()


def test_a_flush_is_noticed_and_repaired(lab: Lab, unprotected: Endpoint) -> None:
    with RulesetMonitor(lab) as monitor:
        lab.nft("flush ruleset")
        eventually(lambda: "table ip rodvr" in lab.nft("list tables"))
        assert "delete table ip rodvr" in monitor.changes()
    assert lab.reaches("vm1", A) == "g1:8308"


@pytest.mark.parametrize(
    "damage",
    [
        "delete element ip rodvr real { 240.71.0.1 . 169.254.71.1 . 8308 }",
        "flush chain netdev rodvr in-tap11111111-11",
        "flush chain ip rodvr translate",
        "delete element netdev rodvr back { 240.71.0.1 }",
        "delete table netdev rodvr",
    ],
)
def test_what_others_delete_comes_back(lab: Lab, unprotected: Endpoint, damage: str) -> None:
    lab.nft(damage)
    eventually(lambda: lab.ask("vm1", A, seconds=0.3).startswith("g1:8308"))
    assert unprotected.report().problems == ()


def test_what_others_add_to_the_maps_is_removed(lab: Lab, unprotected: Endpoint) -> None:
    mapping = "240.71.9.9 . 169.254.71.1 . 8308 : 192.168.50.11 . 8308"
    lab.nft(f"add element ip rodvr real {{ {mapping} }}")
    eventually(lambda: "240.71.9.9" not in lab.nft("list map ip rodvr real"))


def test_an_update_against_a_stale_state_succeeds(lab: Lab, make_endpoint: Any) -> None:
    """The mapping to be changed is already missing when the call comes, and this was not noticed yet."""
    endpoint = make_endpoint(protected=False)
    endpoint.replace(usual())
    with endpoint._lock:  # so that the watching thread cannot repair it first
        lab.nft("delete element ip rodvr real { 240.71.0.1 . 169.254.71.1 . 8308 }")
        assert endpoint.apply(binding("vm1", {A: G2, B: G2_OTHER})).problems == ()
    assert lab.reaches("vm1", A) == "g2:8308"


def test_without_the_pair_masked_traffic_is_dropped_and_the_pair_comes_back(
    lab: Lab, endpoint: Endpoint
) -> None:
    lab.ip("cmp", "link del rodvr0")
    eventually(lambda: lab.ask("vm1", A, seconds=0.3).startswith("g1:8308"))
    assert endpoint.report().problems == ()


def test_the_gpu_nic_may_go_down_and_up(lab: Lab, endpoint: Endpoint) -> None:
    lab.ip("cmp", "link set gpu0 down")
    lab.ip("cmp", "link set gpu0 up")
    eventually(lambda: lab.ask("vm1", A, seconds=0.3).startswith("g1:8308"))


def test_a_missing_gpu_nic_is_a_problem_until_it_comes(lab: Lab, endpoint: Endpoint) -> None:
    lab.ip("cmp", "link set gpu0 down; link set gpu0 name gpu9")
    try:
        # Before that one, a route that is added between the two steps may be the problem.
        missing = "there is no interface gpu0"
        eventually(lambda: [missing in said for said in endpoint.report().problems] == [True])
    finally:
        lab.ip("cmp", "link set gpu9 name gpu0; link set gpu0 up")
    eventually(lambda: endpoint.report().problems == ())
    eventually(lambda: lab.ask("vm1", A, seconds=0.3).startswith("g1:8308"))


def test_forwarding_that_was_disabled_is_enabled_again(lab: Lab, make_endpoint: Any) -> None:
    endpoint = make_endpoint(audit_interval=0.2)
    endpoint.replace(usual())
    lab.sysctl("cmp", "ipv4/conf/gpu0/forwarding", 0)
    eventually(lambda: lab.sysctl("cmp", "ipv4/conf/gpu0/forwarding") == "1")


@pytest.mark.parametrize(
    "wrong",
    [{"mac": "nonsense"}, {"ip": "10.0.0"}, {"tap": "a-name-of-more-than-15-bytes"}],
    ids=["mac", "ip", "tap"],
)
def test_a_binding_the_kernel_cannot_take_does_not_stop_the_others(
    lab: Lab, make_endpoint: Any, wrong: dict[str, str]
) -> None:
    endpoint = make_endpoint()
    bindings = [binding("vm1", {A: G1}, **wrong), binding("vm2", {A: G2})]
    report = endpoint.replace(bindings)
    installed = {port: b.installed for port, b in report.bindings.items()}
    assert installed == {"port-vm1": False, "port-vm2": True}
    (problem,) = report.problems
    assert "port-vm1" in problem
    assert lab.reaches("vm2", A) == "g2:8308"
    endpoint.apply(binding("vm1", {A: G1}))
    assert endpoint.report().problems == ()
    assert lab.reaches("vm1", A) == "g1:8308"


def test_identities_that_run_out_are_a_problem_until_one_is_released(
    lab: Lab, make_endpoint: Any
) -> None:
    endpoint = make_endpoint(identity_network="240.71.0.0/30", grace=0, retry_interval=0.1)
    endpoint.replace(binding(vm, {A: G1}) for vm in ("vm1", "vm2"))
    third = endpoint.apply(binding("vm3", {A: G1}))
    assert not third.bindings["port-vm3"].installed
    assert "all 2 identity addresses of this host are assigned" in third.problems[0]
    endpoint.remove("port-vm1")
    eventually(lambda: endpoint.report().bindings["port-vm3"].installed)
    assert endpoint.report().problems == ()
    assert lab.reaches("vm3", A) == "g1:8308"


def test_two_bindings_of_one_tap_are_a_problem_and_the_later_one_has_it(
    lab: Lab, endpoint: Endpoint
) -> None:
    endpoint.apply(binding("vm1", {A: G2}, port_id="port-other"))
    (problem,) = endpoint.report().problems
    assert "its tap tap11111111-11 belongs to port port-other" in problem
    assert lab.reaches("vm1", A) == "g2:8308"
    endpoint.remove("port-other")
    assert endpoint.report().problems == ()
    assert lab.reaches("vm1", A) == "g1:8308"


def test_any_thread_may_call(lab: Lab, endpoint: Endpoint) -> None:
    def move(target: Any, count: int) -> None:
        for _ in range(count):
            endpoint.apply(binding("vm1", {A: target}))
            endpoint.report()

    threads = [threading.Thread(target=move, args=(target, 20)) for target in (G1, G2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    endpoint.apply(binding("vm1", {A: G1}))
    assert endpoint.report().problems == ()
    assert lab.reaches("vm1", A) == "g1:8308"


def namespaces() -> set[str]:
    """Network namespaces that threads of this process are in."""
    return {str((task / "ns/net").readlink()) for task in Path("/proc/self/task").iterdir()}


def test_endpoints_of_several_hosts_share_a_process(lab: Lab, make_endpoint: Any) -> None:
    """Each works in its own namespace, and no thread is left in one."""
    home = namespaces()
    other = Endpoint("g1", DatapathConfig("eth0", lab.name("g1")))
    endpoint = make_endpoint()
    other.start()
    try:
        threads = [threading.Thread(target=e.replace, args=([],)) for e in (other, endpoint) * 5]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert "rodvr0" in str(lab.ip_json("g1", "link"))
        assert other.report().problems == endpoint.report().problems == ()
        assert namespaces() == home
    finally:
        other.teardown()
    assert "rodvr0" not in str(lab.ip_json("g1", "link"))


def test_an_audit_touches_no_route_and_no_link(lab: Lab, make_endpoint: Any) -> None:
    endpoint = make_endpoint(audit_interval=0.05)
    endpoint.replace(usual())
    with lab.watching_routes() as changes:
        lab.sysctl("cmp", "ipv4/conf/gpu0/forwarding", 0)
        eventually(lambda: lab.sysctl("cmp", "ipv4/conf/gpu0/forwarding") == "1")
        assert changes() == []
