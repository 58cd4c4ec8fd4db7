# SPDX-License-Identifier: Apache-2.0
"""Leases of the compute host's own programs: masked addresses without a tap, for one user or for all."""

from __future__ import annotations

import ipaddress
import json
import sys

import pytest

from gsaas.objects.address import Address
from gsaas.objects.binding import LocalBinding
from gsaas.rodvr.config import LOCAL_PREFIX
from gsaas.rodvr.kernel.conntrack import Conntrack
from tests.kernel.rodvr.lab import COMPUTE_IP, G1, G2, G2_OTHER, PEERS, PORT, A, eventually

pytestmark = pytest.mark.kernel

ALICE, BOB = 2001, 2002
X, Y = Address("169.254.72.1", PORT), Address("169.254.79.254", PORT)


def lease(name: str = "lease-1", uid: int | None = ALICE, **mappings: Address) -> LocalBinding:
    """A binding; X and Y are what it may map."""
    masked = {"x": X, "y": Y}
    return LocalBinding(name, name, uid, {masked[key]: real for key, real in mappings.items()})


def as_user(uid: int) -> list[str]:
    return ["setpriv", f"--reuid={uid}", "--clear-groups", sys.executable, "-SE", PEERS]


def ask(lab, masked: Address, uid: int = ALICE) -> str:
    """What a program of the compute host gets at *masked*: the daemon's name and the peer it sees, or the error."""
    return lab.run("cmp", *as_user(uid), "ask", masked.ip, str(masked.port)).strip()


def elements(lab) -> dict[tuple[int, str, int], tuple[str, int]]:
    """The map `local`, as nft lists it."""
    listed = json.loads(lab.nft("-j list map ip rodvr local"))["nftables"]
    (found,) = [entry["map"] for entry in listed if "map" in entry]
    return {tuple(key["concat"]): tuple(value["concat"]) for key, value in found.get("elem", [])}


def routes(lab) -> list[str]:
    return [route["dst"] for route in lab.ip_json("cmp", "route show proto 71")]


def test_a_program_reaches_the_daemons_of_its_lease_from_the_hosts_gpu_address(lab, endpoint):
    report = endpoint.apply(lease(x=G1, y=G2_OTHER))

    assert report.bindings["lease-1"].installed
    assert report.bindings["lease-1"].seconds < 1
    assert ask(lab, X) == f"g1:{PORT} peer={COMPUTE_IP}"
    assert ask(lab, Y) == f"g2:{PORT + 1} peer={COMPUTE_IP}"


def test_the_kernel_holds_one_element_for_each_cgpu_and_one_route_for_all(lab, endpoint):
    endpoint.apply(lease(x=G1))
    endpoint.apply(lease("lease-2", None, y=G2))

    assert elements(lab) == {
        (ALICE, X.ip, X.port): (G1.ip, G1.port),
        (2**32 - 1, Y.ip, Y.port): (G2.ip, G2.port),
    }
    assert routes(lab) == [LOCAL_PREFIX]


def test_another_user_of_the_host_is_turned_down_at_once_and_counted(lab, endpoint):
    endpoint.apply(lease(x=G1))

    assert ask(lab, X, BOB) == "ConnectionRefusedError"
    assert ask(lab, X, 0) == "ConnectionRefusedError"

    assert endpoint.report().bindings["lease-1"].unmapped == 2
    assert ask(lab, X, ALICE).startswith("g1")


def test_a_lease_for_all_users_serves_all_users(lab, endpoint):
    endpoint.apply(lease(uid=None, x=G1))

    for uid in (0, ALICE, BOB):
        assert ask(lab, X, uid).startswith("g1")


def test_what_no_lease_has_is_refused_and_never_leaves_the_host(lab, endpoint):
    endpoint.apply(lease(x=G1))

    assert ask(lab, Y) == "ConnectionRefusedError"
    assert ask(lab, Address(X.ip, PORT + 1)) == "ConnectionRefusedError"
    lab.run("cmp", sys.executable, "-SE", PEERS, "ping", X.ip, "0.2", check=False)
    assert lab.counter("ip", "local-guard", 2) == 1


def test_vms_cannot_use_the_addresses_of_programs(lab, endpoint):
    endpoint.apply(lease(uid=None, x=G1))
    lab.ip("vm1", f"route add {LOCAL_PREFIX} via 10.0.0.1")
    before = lab.sysctl("cmp", "ipv4/conf/br-a/forwarding")
    lab.sysctl("cmp", "ipv4/conf/br-a/forwarding", 1)
    try:
        assert lab.ask("vm1", X, seconds=0.3) == "TimeoutError"
    finally:
        lab.sysctl("cmp", "ipv4/conf/br-a/forwarding", before)
        lab.ip("vm1", f"route del {LOCAL_PREFIX}")
    assert lab.reaches("vm1", A) == f"g1:{PORT}"


def test_removed_its_connections_end_and_new_ones_are_refused(lab, endpoint):
    endpoint.apply(lease(uid=None, x=G1))
    before = lab.established("g1", PORT)
    talking, waiting = lab.talk("cmp", X), lab.wait("cmp", X)
    assert talking.line().startswith("g1")
    assert waiting.line().startswith("g1")
    own = lab.established("g1", PORT) - before

    endpoint.remove("lease-1")

    assert talking.rest() == ["ConnectionResetError"]
    assert waiting.rest() == ["ConnectionResetError"]
    assert ask(lab, X) == "ConnectionRefusedError"
    assert elements(lab) == {}
    assert len(own) == 2
    eventually(lambda: not own & lab.established("g1", PORT))


def test_open_connections_of_programs_are_counted_by_lease(lab, endpoint):
    endpoint.apply(lease(uid=None, x=G1))
    assert endpoint.connections("lease-1") == 0
    waiting = lab.wait("cmp", X)
    eventually(lambda: endpoint.connections("lease-1") == 1)
    waiting.process.terminate()
    waiting.process.wait()
    eventually(lambda: endpoint.connections("lease-1") == 0)


def test_a_cgpu_that_moves_cuts_its_own_connections_and_no_others(lab, endpoint):
    endpoint.apply(lease(uid=None, x=G1, y=G2))
    moved, stays = lab.talk("cmp", X), lab.talk("cmp", Y, 20)
    assert moved.line().startswith("g1")
    assert stays.line().startswith("g2")

    endpoint.apply(lease(uid=None, x=G2_OTHER, y=G2))

    assert moved.rest() == ["ConnectionResetError"]
    assert stays.rest() == ["survived"]
    assert ask(lab, X).startswith(f"g2:{PORT + 1}")


def test_a_restarted_endpoint_keeps_what_it_finds_and_removes_what_is_over(lab, make_endpoint):
    first = make_endpoint()
    first.replace([lease(uid=None, x=G1), lease("lease-2", None, y=G2)])
    stays, ends = lab.talk("cmp", X, 30), lab.talk("cmp", Y)
    assert (stays.line()[:2], ends.line()[:2]) == ("g1", "g2")
    first.stop()

    second = make_endpoint()
    assert len(elements(lab)) == 2
    report = second.replace([lease(uid=None, x=G1)])

    assert list(report.bindings) == ["lease-1"]
    assert list(elements(lab)) == [(2**32 - 1, X.ip, X.port)]
    assert ends.rest() == ["ConnectionResetError"]
    assert stays.rest() == ["survived"]


def test_what_others_destroy_is_put_back(lab, make_endpoint):
    endpoint = make_endpoint(protected=False)
    endpoint.replace([lease(x=G1)])

    lab.ip("cmp", "route flush proto 71")
    lab.nft("flush ruleset")

    eventually(lambda: "rodvr" in lab.nft("list tables") and elements(lab))
    eventually(lambda: routes(lab) == [LOCAL_PREFIX])
    assert ask(lab, X).startswith("g1")


def test_the_gpu_network_card_may_go_and_come_back(lab, endpoint):
    endpoint.apply(lease(x=G1))

    lab.ip("cmp", "link set gpu0 down")
    eventually(lambda: routes(lab) == [])
    lab.ip("cmp", "link set gpu0 up")

    eventually(lambda: routes(lab) == [LOCAL_PREFIX])
    eventually(lambda: ask(lab, X).startswith("g1"))


def test_nothing_of_it_is_left_after_a_teardown(lab, make_endpoint):
    endpoint = make_endpoint()
    endpoint.replace([lease(uid=None, x=G1)])
    talking = lab.talk("cmp", X)
    assert talking.line().startswith("g1")

    endpoint.teardown()

    assert routes(lab) == []
    assert "rodvr" not in lab.nft("list tables")
    assert [line for line in lab.connections() if X.ip in line] == []
    assert talking.rest() != ["survived"]


def test_what_a_program_sends_during_a_teardown_is_not_tracked(lab, make_endpoint, monkeypatch):
    lab.nft("add table ip firewall")  # of others: without any, the kernel tracks nothing
    lab.nft("add chain ip firewall out { type filter hook output priority 0 ; }")
    lab.nft("add rule ip firewall out ct state established accept")
    endpoint = make_endpoint()
    endpoint.replace([lease(uid=None, x=G1)])
    forget, answers = Conntrack.forget, []

    def forget_and_send(*arguments):
        forget(*arguments)
        answers.append(ask(lab, X))

    monkeypatch.setattr(Conntrack, "forget", forget_and_send)
    endpoint.teardown()

    assert answers
    assert not any(answer.startswith("g1") for answer in answers)
    assert [line for line in lab.connections() if X.ip in line] == []


def test_what_was_tracked_while_there_were_no_tables_is_in_no_programs_way(lab, make_endpoint):
    lab.track(f"-s {X.ip} --sport {PORT} -d {COMPUTE_IP} --dport 40004")
    make_endpoint().apply(lease(uid=None, x=G1))
    assert lab.talk("cmp", X, count=0, source_port=40004).line().startswith("g1")


def test_an_address_outside_the_local_prefix_is_refused(endpoint):
    with pytest.raises(ValueError, match="local prefix"):
        endpoint.apply(LocalBinding("lease-1", "lease-1", None, {A: G1}))


@pytest.mark.parametrize("prefix", ["169.254.71.128/25", "169.254.168.0/23"])
def test_a_local_prefix_that_would_take_addresses_from_vms_is_refused(make_endpoint, prefix):
    assert ipaddress.IPv4Network(prefix)
    with pytest.raises(ValueError, match=prefix):
        make_endpoint(local_prefix=prefix)
