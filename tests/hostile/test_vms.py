# SPDX-License-Identifier: Apache-2.0
"""Root in a VM against its neighbours on the same compute host and behind the same daemons.

VMs 1 and 2 have the same address; VM 3 stands for a VM of another tenant (see `tests.kernel.rodvr.lab`).
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gsaas.objects.address import Address
from gsaas.objects.endpoint_report import ConntrackLevel
from gsaas.rodvr.config import USUAL, ConnectionLimits
from gsaas.rodvr.endpoint import Endpoint
from tests.hostile import packets
from tests.kernel.rodvr.lab import COMPUTE_IP, G1, G2, PORT, VMS, A, B, Lab, binding, eventually

pytestmark = pytest.mark.kernel


def send(lab: Lab, vm: str, command: str, *arguments: object) -> None:
    """Have a VM send raw packets: a command of `packets`."""
    program = [sys.executable, "-SE", str(packets.__file__), command, *map(str, arguments)]
    lab.run(vm, *program)


@contextmanager
def held(lab: Lab, vm: str, masked: Address, count: int) -> Iterator[int]:
    """Have a VM try to keep *count* connections; yields how many it got."""
    program = [sys.executable, "-SE", str(packets.__file__), "hold", masked.ip, str(masked.port)]
    peer = lab.start(vm, *program, str(count))
    try:
        yield int(peer.line())
    finally:
        peer.rest()


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


# -- another VM's address, and other ways around the tap's chain ----------------------------------------


FORGED = {"its address": "10.0.0.5", "its identity": "240.71.0.1"}
"""What belongs to VM 1, and VM 3 sends from."""


def first_packet(vm: str, to: Address, source: str, **more: Any) -> bytes:
    """Return a frame that begins a connection, with right checksums."""
    head = packets.syn(source, to.ip, 40_000, to.port)
    return packets.frame(source, to.ip, socket.IPPROTO_TCP, head, mac=mac(vm), **more)


def mac(vm: str) -> bytes:
    return bytes.fromhex(VMS[vm][3].replace(":", ""))


def send_frames(lab: Lab, vm: str, *frames: bytes) -> None:
    send(lab, vm, "frames", *(frame.hex() for frame in frames))


@pytest.fixture
def nothing_tracked(lab: Lab) -> None:
    lab.run("cmp", "conntrack", "-F", check=False)


def test_the_same_packet_of_a_vm_to_its_own_gpu_begins_a_connection(
    lab: Lab, endpoint: Endpoint, nothing_tracked: None
) -> None:
    """Without this, a packet of these attacks might fail for being malformed."""
    send_frames(lab, "vm1", first_packet("vm1", A, VMS["vm1"][2]))
    (connection,) = lab.connections("-s", "240.71.0.1")
    assert f"src={G1.ip} dst={COMPUTE_IP}" in connection


NOT_OPENING = {
    "ACK": 0x10,
    "SYN and ACK": 0x12,
    "FIN and ACK": 0x11,
    "RST": 0x04,
    "none": 0x00,
    "all": 0x3F,
    "SYN and FIN": 0x03,
    "SYN and RST": 0x06,
    "PSH and URG": 0x28,
}
"""Flags of TCP with which no connection begins -> their bits."""


@pytest.mark.parametrize("bits", NOT_OPENING.values(), ids=NOT_OPENING.keys())
def test_a_packet_that_begins_no_connection_is_not_tracked_as_one(
    lab: Lab, endpoint: Endpoint, nothing_tracked: None, bits: int
) -> None:
    """The rate counts SYNs; the kernel also tracks connections from their middle on, for five days."""
    own, real = VMS["vm1"][2], mac("vm1")
    heads = [packets.syn(own, A.ip, port, A.port, bits) for port in range(40_000, 40_050)]
    send_frames(
        lab,
        "vm1",
        *(packets.frame(own, A.ip, socket.IPPROTO_TCP, head, mac=real) for head in heads),
    )
    assert lab.connections("-s", "240.71.0.1") == []
    assert lab.reaches("vm1", A) == "g1:8308"


def test_what_a_vm_asks_for_in_anothers_name_by_arp_is_believed_by_nobody(
    lab: Lab, endpoint: Endpoint
) -> None:
    """VM 3 asks for a masked address as VM 1, with its own MAC: only VM 3 gets an answer."""
    assert lab.reaches("vm1", A) == "g1:8308"
    lab.run("vm3", "ping", "-c", "1", "-W", "3", "10.0.0.5")
    before = neighbours(lab)
    request = bytearray(packets.arp_reply("10.0.0.5", mac("vm3")))
    request[20:22] = b"\0\1"  # a request
    request[32:42] = bytes(6) + socket.inet_aton(A.ip)
    send_frames(lab, "vm3", bytes(request))
    assert neighbours(lab) == before
    assert lab.reaches("vm1", A) == "g1:8308"


def neighbours(lab: Lab) -> dict[tuple[str, str], str]:
    """What each place but VM 3 believes of the address of VM 1."""
    return {
        (place, each["dst"]): each.get("lladdr", "")
        for place in ("cmp", "vm2")
        for each in lab.ip_json(place, "neigh show")
        if each["dst"] == "10.0.0.5"
    }


@pytest.mark.parametrize("source", FORGED.values(), ids=FORGED.keys())
@pytest.mark.parametrize("tags", [(), (0,), (5,), (0, 0), (5, 6)])
def test_a_forged_source_begins_no_connection_whatever_tags_the_frame_has(
    lab: Lab, endpoint: Endpoint, nothing_tracked: None, source: str, tags: tuple[int, ...]
) -> None:
    send_frames(lab, "vm3", packets.tagged(first_packet("vm3", A, source), *tags))
    assert lab.connections() == []


@pytest.mark.parametrize("tags", [(0,), (5,), (0, 0), (5, 6)])
def test_a_tag_leads_no_vm_beyond_its_mappings(
    lab: Lab, endpoint: Endpoint, nothing_tracked: None, tags: tuple[int, ...]
) -> None:
    send_frames(lab, "vm2", packets.tagged(first_packet("vm2", B, VMS["vm2"][2]), *tags))
    assert lab.connections() == []


@pytest.mark.parametrize("kind", [131, 137], ids=["loose", "strict"])
def test_a_source_route_leads_no_vm_to_another_gpu(
    lab: Lab, endpoint: Endpoint, nothing_tracked: None, kind: int
) -> None:
    """An option of IPv4 that names the next hop: VM 1, which is given G1, names G2."""
    option = bytes([kind, 7, 4]) + socket.inet_aton(G2.ip) + b"\0"
    own = VMS["vm1"][2]
    send_frames(lab, "vm1", first_packet("vm1", A, own, options=option))
    assert f"={G2.ip} " not in "".join(lab.connections())

    send_frames(lab, "vm3", first_packet("vm3", A, VMS["vm3"][2], options=option))
    assert lab.connections("-s", "240.71.0.3") == []


def test_a_forged_answer_of_arp_leads_no_other_vm_astray(lab: Lab, endpoint: Endpoint) -> None:
    """VM 1 claims the masked address on the network of VM 3, which believes it."""
    endpoint.apply(binding("vm3", {A: G1}))
    assert lab.reaches("vm3", A) == "g1:8308"
    believed = VMS["vm1"][3]

    send_frames(lab, "vm1", packets.arp_reply(A.ip, mac("vm1")))

    neighbours = {each["dst"]: each["lladdr"] for each in lab.ip_json("vm3", "neigh show")}
    assert neighbours[A.ip] == believed
    assert lab.reaches("vm3", A) == "g1:8308"


def test_over_ipv6_a_vm_gets_nowhere(lab: Lab, endpoint: Endpoint, nothing_tracked: None) -> None:
    """Not to the masked address as IPv6 writes it, and RODVR's own interfaces have no IPv6."""

    def received() -> int:
        return lab.ip_json("cmp", "-s link show dev rodvr1")[0]["stats64"]["rx"]["packets"]

    before = received()
    head = packets.syn("10.0.0.5", A.ip, 40_000, A.port)
    for ip in (f"::ffff:{A.ip}", f"64:ff9b::{A.ip}"):
        ends = socket.inet_pton(socket.AF_INET6, "fe80::5") + socket.inet_pton(socket.AF_INET6, ip)
        ipv6 = struct.pack("!IHBB", 6 << 28, len(head), socket.IPPROTO_TCP, 64) + ends + head
        send_frames(lab, "vm1", packets.GATEWAY_MAC + mac("vm1") + b"\x86\xdd" + ipv6)

    assert received() == before
    assert [address["addr_info"] for address in lab.ip_json("cmp", "-6 addr show dev rodvr1")] == []


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


# -- more connections than are its due ------------------------------------------------------------------


ALL_PORTS = 64_512
"""Source ports of one address from 1024 on: the connections that a host can have to one daemon."""


def tracked(lab: Lab, identity: str) -> int:
    """How many connections of a VM the kernel tracks, those that are over included."""
    return len(lab.connections("-s", identity))


@pytest.fixture
def silent_vm(lab: Lab) -> Iterator[None]:
    """VM 1 does not answer what it receives, so that connections which it has begun stay as they are."""
    lab.run("vm1", "nft", "add table ip silent")
    lab.run("vm1", "nft", "add chain ip silent out { type filter hook output priority 0; }")
    lab.run("vm1", "nft", "add rule ip silent out tcp flags rst drop")
    yield
    lab.run("vm1", "nft", "delete table ip silent")
    lab.run("cmp", "conntrack", "-F", check=False)


@pytest.fixture
def sharing(make_endpoint: Any) -> Endpoint:
    """An endpoint on which VMs 1 and 3 share a daemon, and VM 1 has another one."""
    endpoint = make_endpoint()
    endpoint.replace([binding("vm1", {A: G1, B: G2}), binding("vm3", {A: G1})])
    return endpoint


def test_a_flood_of_new_connections_takes_neither_ports_nor_daemons_from_others(
    lab: Lab, sharing: Endpoint, silent_vm: None
) -> None:
    talking = lab.talk("vm3", A, 100)
    assert talking.line().startswith("g1")

    send(lab, "vm1", "syns", VMS["vm1"][2], A.ip, A.port, ALL_PORTS)

    assert tracked(lab, "240.71.0.1") <= USUAL.per_daemon
    assert [lab.reaches("vm3", A) for _ in range(3)] == ["g1:8308"] * 3
    assert talking.rest() == ["survived"]


def test_floods_to_many_daemons_leave_the_table_of_connections_to_others(
    lab: Lab, make_endpoint: Any, silent_vm: None
) -> None:
    """Four cGPUs of one VM, whose daemons are different ones."""
    masked = [Address(f"169.254.71.{number}", PORT) for number in range(1, 5)]
    real = [Address(gpu_host.ip, port) for gpu_host in (G1, G2) for port in (PORT, PORT + 1)]
    limits = ConnectionLimits(per_vm=100, per_daemon=64, new_per_second=100_000)
    endpoint = make_endpoint(limits=limits)
    endpoint.replace([binding("vm1", dict(zip(masked, real, strict=True)))])

    for address in masked:
        send(lab, "vm1", "syns", VMS["vm1"][2], address.ip, address.port, 1000)

    assert tracked(lab, "240.71.0.1") == limits.per_vm


def test_new_connections_beyond_the_rate_are_dropped_before_they_are_tracked(
    lab: Lab, make_endpoint: Any, silent_vm: None
) -> None:
    limits = ConnectionLimits(per_vm=0, per_daemon=0, new_per_second=1)
    make_endpoint(limits=limits).replace([binding("vm1", {A: G1}), binding("vm3", {A: G1})])

    send(lab, "vm1", "syns", VMS["vm1"][2], A.ip, A.port, 5000)

    let_through = tracked(lab, "240.71.0.1")
    assert limits.burst <= let_through < 1000
    assert lab.counter("netdev", f"in-{VMS['vm1'][0]}", 1) == 5000 - let_through
    assert lab.reaches("vm3", A) == "g1:8308"


def test_one_vm_cannot_take_all_connections_of_a_daemon(lab: Lab, sharing: Endpoint) -> None:
    """A GPU host counts the connections of a compute host, whichever of its VMs has them."""
    with held(lab, "vm1", A, 100) as got:
        assert got == USUAL.per_daemon
        assert lab.reaches("vm1", A) == "ConnectionRefusedError"
        assert lab.reaches("vm1", B) == "g2:8308"
        assert lab.reaches("vm3", A) == "g1:8308"
    assert lab.reaches("vm1", A) == "g1:8308"


def test_two_masked_addresses_of_one_daemon_give_no_more_connections(
    lab: Lab, make_endpoint: Any
) -> None:
    make_endpoint().replace([binding("vm1", {A: G1, B: G1})])
    with held(lab, "vm1", A, 40), held(lab, "vm1", B, 40) as got:
        assert got == USUAL.per_daemon - 40


def test_connections_that_are_over_do_not_count(lab: Lab, make_endpoint: Any) -> None:
    make_endpoint(limits=ConnectionLimits(4, 2, 0)).replace([binding("vm1", {A: G1})])
    for _ in range(5):
        with held(lab, "vm1", A, 3) as got:
            assert got == 2


def test_a_table_of_connections_that_fills_is_a_problem(lab: Lab, make_endpoint: Any) -> None:
    lab.run("cmp", "conntrack", "-F")  # nothing ends by itself meanwhile
    limit = int(lab.sysctl("cmp", "netfilter/nf_conntrack_max"))
    threshold = 5 / limit
    endpoint = make_endpoint(conntrack_threshold=threshold, audit_interval=0.2)
    endpoint.replace([binding("vm1", {A: G1})])

    with held(lab, "vm1", A, 20):
        (problem,) = eventually(lambda: endpoint.report().problems)
        assert problem.startswith("the table of connections has ")
        level = endpoint.report().conntrack
        assert level == ConntrackLevel(int(lab.run("cmp", "conntrack", "-C")), limit)
        assert level.entries >= 20

    def solved() -> bool:
        lab.run("cmp", "conntrack", "-F")
        return endpoint.report().problems == ()

    eventually(solved)


def test_without_limits_a_vm_takes_what_it_wants(lab: Lab, make_endpoint: Any) -> None:
    make_endpoint(limits=ConnectionLimits(0, 0, 0)).replace([binding("vm1", {A: G1})])
    with held(lab, "vm1", A, 80) as got:
        assert got == 80


def test_other_limits_end_no_connection(lab: Lab, make_endpoint: Any) -> None:
    first = make_endpoint()
    first.replace([binding("vm1", {A: G1})])
    talking = lab.talk("vm1", A, 50)
    assert talking.line().startswith("g1")
    first.stop()

    make_endpoint(limits=ConnectionLimits(4, 2, 10)).replace([binding("vm1", {A: G1})])

    assert talking.rest() == ["survived"]
    with held(lab, "vm1", A, 3) as got:
        assert got == 2
