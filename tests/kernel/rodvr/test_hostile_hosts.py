# SPDX-License-Identifier: Apache-2.0
"""Settings and firewalls of other programs that must not matter, or must be reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gsaas.rodvr.endpoint import Endpoint
from tests.kernel.rodvr.lab import USUAL, A, Lab, binding, eventually

pytestmark = pytest.mark.kernel

DEVICES = ("all", "default", "rodvr1", "gpu0")


@pytest.fixture
def audited(make_endpoint: Any) -> Endpoint:
    """Runs an audit every 0.2 s, so that a test does not wait."""
    endpoint = make_endpoint(audit_interval=0.2)
    endpoint.replace(binding(vm, mappings) for vm, mappings in USUAL.items())
    return endpoint


@pytest.fixture
def clean_firewall(lab: Lab) -> Iterator[None]:
    yield
    for command in ("-P FORWARD ACCEPT", "-F", "-X", "-t mangle -F"):
        lab.run("cmp", "iptables", *command.split())
    for table in ("ip filter", "ip mangle", "inet foreign"):
        lab.nft(f"delete table {table}", check=False)


def iptables(lab: Lab, *rules: str) -> None:
    for rule in rules:
        lab.run("cmp", "iptables", *rule.split())


@pytest.mark.parametrize("mode", [1, 2], ids=["strict", "loose"])
def test_reverse_path_filters_do_not_matter(lab: Lab, endpoint: Endpoint, mode: int) -> None:
    try:
        for device in DEVICES:
            lab.sysctl("cmp", f"ipv4/conf/{device}/rp_filter", mode)
        assert [lab.reaches("vm1", A), lab.reaches("vm2", A)] == ["g1:8308", "g2:8308"]
        lab.sysctl("cmp", "ipv4/conf/all/src_valid_mark", 1)
        assert lab.reaches("vm1", A) == "g1:8308"
    finally:
        lab.sysctl("cmp", "ipv4/conf/all/src_valid_mark", 0)
        for device in ("all", "default", "gpu0"):
            lab.sysctl("cmp", f"ipv4/conf/{device}/rp_filter", 0)


def test_foreign_marks_do_not_matter(lab: Lab, endpoint: Endpoint, clean_firewall: None) -> None:
    iptables(
        lab,
        "-t mangle -A PREROUTING -j CONNMARK --restore-mark",
        "-t mangle -A PREROUTING -j MARK --set-mark 0x1",
    )
    assert lab.reaches("vm1", A) == "g1:8308"


def test_flushing_foreign_conntrack_zones_does_not_matter(lab: Lab, endpoint: Endpoint) -> None:
    talk = lab.talk("vm1", A, 20)
    talk.line()
    lab.run("cmp", "conntrack", "-D", "-w", "1", check=False)
    assert talk.rest() == ["survived"]


def test_an_iptables_forward_policy_of_drop_is_reported_with_its_remedy(
    lab: Lab, audited: Endpoint, clean_firewall: None
) -> None:
    """It drops everything, and no table of RODVR can prevent that."""
    iptables(lab, "-P FORWARD DROP")
    assert lab.ask("vm1", A, seconds=0.3) == "TimeoutError"
    (problem,) = eventually(lambda: audited.report().problems)
    assert problem.startswith("chain FORWARD of nftables table ip filter drops")
    commands = problem.split("allow it with: ")[1].split("; ")
    assert len(commands) == 2
    for command in commands:
        lab.run("cmp", *command.split())
    assert lab.reaches("vm1", A) == "g1:8308"
    eventually(lambda: audited.report().problems == ())


def test_a_foreign_nftables_chain_that_drops_is_reported_with_its_remedy(
    lab: Lab, audited: Endpoint, clean_firewall: None
) -> None:
    lab.nft("add table inet foreign")
    lab.nft("add chain inet foreign fw { type filter hook forward priority 0; policy drop; }")
    lab.nft("add rule inet foreign fw ct state established accept")
    lab.nft("add rule inet foreign fw tcp dport 22 accept")
    assert lab.ask("vm1", A, seconds=0.3) == "TimeoutError"
    (problem,) = eventually(lambda: audited.report().problems)
    assert problem.startswith("chain fw of nftables table inet foreign drops")
    for command in problem.split("allow it with: ")[1].split("; "):
        lab.run("cmp", *command.split())
    assert lab.reaches("vm1", A) == "g1:8308"
    eventually(lambda: audited.report().problems == ())


@pytest.mark.parametrize(
    "rules",
    [
        ["-A FORWARD -i rodvr1 -j ACCEPT", "-A FORWARD -m state --state ESTABLISHED -j ACCEPT"],
        ["-N ours", "-A FORWARD -j ours", "-A ours -i rodvr+ -j ACCEPT"]
        + ["-A ours -o rodvr+ -j ACCEPT"],
        ["-A FORWARD -p tcp -j ACCEPT", "-A FORWARD -j DROP"],
        ["-A FORWARD ! -o eth9 -j ACCEPT"],
    ],
    ids=["by state", "in a chain of its own", "all of TCP", "all but another device"],
)
def test_a_firewall_that_lets_rodvr_through_is_no_problem(
    lab: Lab, audited: Endpoint, clean_firewall: None, rules: list[str]
) -> None:
    iptables(lab, *rules, "-P FORWARD DROP")
    assert lab.reaches("vm1", A) == "g1:8308"
    audited.replace(binding(vm, mappings) for vm, mappings in USUAL.items())
    assert audited.report().problems == ()


@pytest.mark.parametrize(
    ("condition", "lets_us_through"),
    [("ip protocol tcp", True), ("ip protocol tcp tcp dport 22", False), ("ip ttl 6", False)],
)
def test_a_protocol_is_read_from_the_header_too(
    lab: Lab,
    audited: Endpoint,
    clean_firewall: None,
    condition: str,
    lets_us_through: bool,
) -> None:
    """As newer releases of iptables have it."""
    iptables(lab, "-P FORWARD DROP")
    lab.nft(f"add rule ip filter FORWARD {condition} accept")
    audited.replace(binding(vm, mappings) for vm, mappings in USUAL.items())
    assert (audited.report().problems == ()) == lets_us_through


def test_a_rule_that_rejects_rodvr_is_a_problem_although_the_policy_accepts(
    lab: Lab, audited: Endpoint, clean_firewall: None
) -> None:
    iptables(lab, "-A FORWARD -j REJECT")
    assert eventually(lambda: audited.report().problems)
    assert not lab.ask("vm1", A, seconds=0.3).startswith("g1")


def test_strict_connection_tracking_is_reported(lab: Lab, audited: Endpoint) -> None:
    lab.sysctl("cmp", "netfilter/nf_conntrack_tcp_loose", 0)
    try:
        (problem,) = eventually(lambda: audited.report().problems)
        assert "nf_conntrack_tcp_loose is 0" in problem
    finally:
        lab.sysctl("cmp", "netfilter/nf_conntrack_tcp_loose", 1)
