# SPDX-License-Identifier: Apache-2.0
"""Rules of a host's own firewall: those that stop RODVR's packets are reported with their remedy, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gsaas.rodvr.endpoint import Endpoint
from tests.kernel.rodvr.lab import USUAL, A, Lab, binding, eventually
from tests.kernel.rodvr.rule_sets import ORDINARY

pytestmark = pytest.mark.kernel

CHAINS = {
    "raw": "pre { type filter hook prerouting priority -300; }",
    "mangle": "pre { type filter hook prerouting priority -150; }",
    "forward": "fw { type filter hook forward priority 0; }",
    "postrouting": "post { type filter hook postrouting priority 0; }",
    "late postrouting": "post { type filter hook postrouting priority 300; }",
}
NFT = {
    "bogons before tracking": ("raw", ["ip saddr 240.0.0.0/4 drop"]),
    "bogons": ("mangle", ["ip saddr 240.0.0.0/4 drop"]),
    "bogons from a set": (
        "mangle",
        ["ip saddr { 0.0.0.0/8, 127.0.0.0/8, 192.0.2.0/24, 224.0.0.0/3 } drop"],
    ),
    "bogons from a map": ("mangle", ["ip saddr vmap { 192.0.2.0/24 : drop, 240.0.0.0/4 : drop }"]),
    "bogons in a range": ("mangle", ["ip saddr 240.0.0.0-255.255.255.254 drop"]),
    "link-local addresses": ("mangle", ["ip daddr 169.254.0.0/16 drop"]),
    "link-local addresses but the metadata's": (
        "mangle",
        ["ip daddr 169.254.169.254 accept", "ip daddr 169.254.0.0/16 drop"],
    ),
    "forwarded bogons": ("forward", ["ip saddr 240.0.0.0/4 drop"]),
    "forwarded bogons, with a log": ("forward", ["ip saddr 240.0.0.0/4 log counter drop"]),
    "forwarded bogons, rejected": ("forward", ["ip saddr 240.0.0.0/4 reject"]),
    "what is forwarded to bogons": ("forward", ["ip daddr 240.0.0.0/4 drop"]),
    "replies by state": ("forward", ["ct state established ip daddr 240.0.0.0/4 drop"]),
    "a port": ("forward", ["tcp dport 8000-9000 drop"]),
    "one GPU host": ("forward", ["ip daddr . tcp dport { 192.168.50.11 . 8308 } drop"]),
    "new connections": ("forward", ["tcp flags & (syn|ack) == syn drop"]),
    "bogons that leave": ("postrouting", ["ip saddr 240.0.0.0/4 drop"]),
    "what leaves for bogons": ("postrouting", ["ip daddr 240.0.0.0/4 drop"]),
    "link-local addresses that leave": ("late postrouting", ["ip saddr 169.254.0.0/16 drop"]),
    "bogons, of which addresses are remembered": (
        "mangle",
        ["update @seen { ip saddr counter } ip saddr 240.0.0.0/4 drop"],
    ),
    "all but some, by a map": ("mangle", ["ip saddr vmap { 192.168.50.0/24 : accept, * : drop }"]),
    "an interface by its number": ("forward", ["iif rodvr1 drop"]),
    "packets for this host": ("mangle", ["meta pkttype host ip saddr 240.0.0.0/4 drop"]),
    "no tracking": ("raw", ["notrack"]),
    "no tracking of VMs": ("raw", ["iifname rodvr1 notrack"]),
    "no tracking of replies": ("raw", ["iifname gpu0 tcp sport 8308 notrack"]),
    "no tracking of bogons": ("raw", ["ip saddr 240.0.0.0/4 notrack"]),
}
IPTABLES = {
    "bogons before tracking": "-t raw -A PREROUTING -s 240.0.0.0/4 -j DROP",
    "bogons": "-t mangle -A PREROUTING -s 240.0.0.0/4 -j DROP",
    "bogons in a range": (
        "-t mangle -A PREROUTING -m iprange --src-range 240.0.0.0-255.255.255.254 -j DROP"
    ),
    "not from here": "-t mangle -A PREROUTING -i rodvr1 ! -s 10.0.0.0/8 -j DROP",
    "forwarded bogons": "-A FORWARD -s 240.0.0.0/4 -j DROP",
    "what is forwarded to bogons": "-A FORWARD -d 240.0.0.0/4 -j DROP",
    "rejected": "-A FORWARD -s 240.0.0.0/4 -p tcp -j REJECT",
    "by state": "-A FORWARD -m conntrack --ctstate NEW -i rodvr+ -j DROP",
    "by state, as it was written before": "-A FORWARD -m state --state NEW -i rodvr+ -j DROP",
    "a port": "-A FORWARD -p tcp --dport 8000:9000 -j DROP",
    "what leaves for bogons": "-t mangle -A POSTROUTING -d 240.0.0.0/4 -j DROP",
    "no tracking": "-t raw -A PREROUTING -j CT --notrack",
    "no tracking of bogons": "-t raw -A PREROUTING -s 240.0.0.0/4 -j NOTRACK",
}


@pytest.fixture
def audited(make_endpoint: Any) -> Endpoint:
    endpoint = make_endpoint(audit_interval=0.2)
    endpoint.replace(binding(vm, mappings) for vm, mappings in USUAL.items())
    return endpoint


@pytest.fixture
def firewall(lab: Lab) -> Iterator[None]:
    yield
    for program in ("iptables-nft", "iptables-legacy"):
        for command in ("-P FORWARD ACCEPT", "-F", "-X"):
            lab.run("cmp", program, *command.split(), check=False)
        for table in ("raw", "mangle", "nat"):
            lab.run("cmp", program, "-t", table, "-F", check=False)
            lab.run("cmp", program, "-t", table, "-X", check=False)
    for line in lab.nft("list tables").splitlines():
        if not line.endswith(" rodvr"):
            lab.nft(f"delete {line}", check=False)


def problems_of(endpoint: Endpoint) -> list[str]:
    """The problems that an operator has with the host, without what was refused to VMs meanwhile."""
    return [text for text in endpoint.report().problems if not text.startswith("lease ")]


def is_reported_with_its_remedy(lab: Lab, endpoint: Endpoint) -> None:
    """Until the remedy's commands have run, no VM reaches its daemon, and the endpoint says why."""
    assert not lab.ask("vm1", A, seconds=0.3).startswith("g1")
    (problem,) = eventually(lambda: problems_of(endpoint))
    for command in problem.split("allow it with: ")[1].split("; "):
        lab.run("cmp", *command.split())
    assert lab.reaches("vm1", A) == "g1:8308"
    eventually(lambda: problems_of(endpoint) == [])


def gone(lab: Lab, endpoint: Endpoint, remove: Any) -> None:
    """Without the rule, everything is as before."""
    remove()
    eventually(lambda: problems_of(endpoint) == [])
    assert lab.reaches("vm1", A) == "g1:8308"


@pytest.mark.parametrize("family", ["ip", "inet"])
@pytest.mark.parametrize(("place", "rules"), NFT.values(), ids=NFT.keys())
def test_a_rule_of_nftables(
    lab: Lab, audited: Endpoint, firewall: None, family: str, place: str, rules: list[str]
) -> None:
    lab.nft(f"add table {family} hard")
    lab.nft(f"add set {family} hard seen {{ type ipv4_addr; flags dynamic; size 100; }}")
    lab.nft(f"add chain {family} hard {CHAINS[place]}")
    chain = CHAINS[place].split()[0]
    for rule in rules:
        lab.nft(f"add rule {family} hard {chain} {rule}")
    is_reported_with_its_remedy(lab, audited)
    gone(lab, audited, lambda: lab.nft(f"delete table {family} hard"))


def test_a_problem_names_hook_chain_and_rule(lab: Lab, audited: Endpoint, firewall: None) -> None:
    lab.nft("add table ip hard")
    lab.nft("add chain ip hard bogons")
    lab.nft("add rule ip hard bogons ip saddr 10.0.0.0/8 return")
    lab.nft("add rule ip hard bogons ip saddr 240.0.0.0/4 drop")
    lab.nft(f"add chain ip hard {CHAINS['mangle']}")
    lab.nft("add rule ip hard pre jump bogons")
    handle = next(
        entry["rule"]["handle"]
        for entry in lab.ruleset()
        if entry.get("rule", {}).get("chain") == "bogons" and "drop" in str(entry)
    )
    (problem,) = eventually(lambda: problems_of(audited))
    assert problem.startswith(
        f"chain pre of nftables table ip hard drops (rule 2 (handle {handle}) of chain bogons) what RODVR forwards "
        "between rodvr1 and gpu0, at prerouting"
    )
    assert problem.endswith("allow it with: nft insert rule ip hard pre iifname rodvr1 accept")


@pytest.mark.parametrize("program", ["iptables-nft", "iptables-legacy"])
@pytest.mark.parametrize("rule", IPTABLES.values(), ids=IPTABLES.keys())
def test_a_rule_of_iptables(
    lab: Lab, audited: Endpoint, firewall: None, program: str, rule: str
) -> None:
    lab.run("cmp", program, *rule.split())
    is_reported_with_its_remedy(lab, audited)
    gone(lab, audited, lambda: lab.run("cmp", program, *rule.replace("-A", "-D").split()))


def test_a_policy_of_iptables_legacy(lab: Lab, audited: Endpoint, firewall: None) -> None:
    lab.run("cmp", "iptables-legacy", "-P", "FORWARD", "DROP")
    is_reported_with_its_remedy(lab, audited)


@pytest.mark.parametrize(
    ("hook", "rule"),
    [
        ("ingress device gpu0", "ip saddr 192.168.50.0/24 tcp sport 8308 drop"),
        ("egress device gpu0", "ip daddr 192.168.50.11 drop"),
        ("ingress device rodvr1", "ip saddr 240.0.0.0/4 drop"),
    ],
)
def test_a_chain_on_a_device(
    lab: Lab, audited: Endpoint, firewall: None, hook: str, rule: str
) -> None:
    lab.nft("add table netdev hard")
    lab.nft(f"add chain netdev hard edge {{ type filter hook {hook} priority 0; }}")
    lab.nft(f"add rule netdev hard edge {rule}")
    is_reported_with_its_remedy(lab, audited)


def test_a_zone_of_one_direction(lab: Lab, audited: Endpoint, firewall: None) -> None:
    lab.nft("add table ip hard")
    lab.nft(f"add chain ip hard {CHAINS['raw']}")
    lab.nft("add rule ip hard pre iifname rodvr1 ct zone set 5")
    assert not lab.ask("vm1", A, seconds=0.3).startswith("g1")
    (problem,) = eventually(lambda: problems_of(audited))
    assert "tracked in zone 5 in one direction only" in problem
    gone(lab, audited, lambda: lab.nft("delete table ip hard"))


def test_a_zone_of_both_directions_is_no_problem(
    lab: Lab, audited: Endpoint, firewall: None
) -> None:
    lab.nft("add table ip hard")
    lab.nft(f"add chain ip hard {CHAINS['raw']}")
    lab.nft("add rule ip hard pre iifname { rodvr1, gpu0 } ct zone set 5")
    assert lab.reaches("vm1", A) == "g1:8308"
    audited.replace(binding(vm, mappings) for vm, mappings in USUAL.items())
    assert problems_of(audited) == []


@pytest.mark.parametrize(
    "commands",
    [
        ["rule add iif rodvr1 table 99", "route add blackhole default table 99"],
        ["rule add from 240.0.0.0/4 prohibit"],
        ["rule add to 240.0.0.0/4 table 99", "route add default via 10.0.0.9 table 99"],
    ],
    ids=["a black hole", "bogons are prohibited", "replies go elsewhere"],
)
def test_routes_that_lead_elsewhere(lab: Lab, audited: Endpoint, commands: list[str]) -> None:
    assert problems_of(audited) == []
    for command in commands:
        lab.ip("cmp", command)
    try:
        assert not lab.ask("vm1", A, seconds=0.3).startswith("g1")
        problem, *_ = eventually(lambda: problems_of(audited))
        assert "look at ip rule, ip route and the rp_filter settings" in problem
    finally:
        for command in commands:
            lab.ip("cmp", command.replace(" add ", " del "))
    gone(lab, audited, lambda: None)


def test_a_host_without_bindings_says_so_too(lab: Lab, make_endpoint: Any, firewall: None) -> None:
    idle = make_endpoint(audit_interval=0.2)
    idle.replace([])
    lab.nft("add table ip hard")
    lab.nft(f"add chain ip hard {CHAINS['mangle']}")
    lab.nft("add rule ip hard pre ip saddr 240.0.0.0/4 drop")
    (problem,) = eventually(lambda: problems_of(idle))
    assert problem.startswith("chain pre of nftables table ip hard drops")


@pytest.mark.parametrize("rule_set", ORDINARY.values(), ids=ORDINARY.keys())
def test_the_firewall_of_an_ordinary_host_is_no_problem(
    lab: Lab, audited: Endpoint, firewall: None, rule_set: tuple[str, str]
) -> None:
    program, text = rule_set
    lab.feed("cmp", text, *program.split())
    assert lab.reaches("vm1", A) == "g1:8308"
    audited.replace(binding(vm, mappings) for vm, mappings in USUAL.items())
    assert problems_of(audited) == []
