# SPDX-License-Identifier: Apache-2.0
"""Which chains are in the way of RODVR's packets, and what operators are told about them."""

from __future__ import annotations

import ipaddress
import sys
from dataclasses import replace

import pytest

from gsaas.objects.address import Address
from gsaas.rodvr import path
from gsaas.rodvr.filters import (
    Compare,
    Constant,
    Decide,
    Load,
    Mask,
    Rule,
    Rules,
    SetZone,
    Untrack,
    Verdict,
)
from gsaas.rodvr.path import BaseChain, Connection

IDENTITIES = ipaddress.IPv4Network("240.71.0.0/16")
REAL = Address("192.0.2.11", 8308)
OF = Connection(
    "rodvr1", "rodvr0", "gpu0", "192.0.2.1", "240.71.0.1", Address("169.254.71.1", 8308), REAL
)
DROP, ACCEPT = Decide(Verdict.DROP), Decide(Verdict.ACCEPT)
FORWARD = BaseChain("inet", "foreign", "fw", Verdict.ACCEPT, "forward", 0)
SOURCE, DESTINATION = 12, 16


def within(place: int, network: str) -> list:
    """Conditions: the address at *place* of the header is in *network*."""
    its = ipaddress.IPv4Network(network)
    mask, address = its.netmask.packed, its.network_address.packed
    return [Load(0, "network", place), Mask(0, 0, mask, bytes(4)), Compare(0, address)]


def device(side: str, name: str) -> list:
    return [Load(0, f"meta {side}", 0, 16), Compare(0, name.encode().ljust(16, b"\0"))]


def obstacles(chain: BaseChain, *rules: list, of: Connection = OF) -> list[str]:
    rule_list = [Rule(tuple(expressions), number) for number, expressions in enumerate(rules, 4)]
    return path.obstacles([(chain, Rules(lambda _: rule_list))], [of], IDENTITIES)


@pytest.mark.parametrize(
    ("hook", "priority", "conditions"),
    [
        ("prerouting", -300, within(SOURCE, "240.0.0.0/4")),
        ("prerouting", -300, within(DESTINATION, "169.254.0.0/16")),
        ("prerouting", -150, within(SOURCE, "192.0.2.11/32")),  # the answer
        ("prerouting", -150, within(DESTINATION, "192.0.2.1/32")),
        ("prerouting", -50, within(DESTINATION, "192.0.2.11/32")),
        ("prerouting", -50, within(DESTINATION, "240.0.0.0/4")),
        ("forward", 0, within(SOURCE, "240.0.0.0/4")),
        ("forward", 0, within(DESTINATION, "240.0.0.0/4")),
        ("forward", 0, device("iifname", "rodvr1")),
        ("postrouting", 0, within(SOURCE, "240.0.0.0/4")),
        ("postrouting", 300, within(SOURCE, "192.0.2.1/32")),
        ("postrouting", 300, within(SOURCE, "169.254.0.0/16")),
    ],
)
def test_a_packet_is_seen_as_it_looks_at_each_hook(hook, priority, conditions) -> None:
    chain = replace(FORWARD, hook=hook, priority=priority)
    assert len(obstacles(chain, [*conditions, DROP])) == 1


@pytest.mark.parametrize(
    ("hook", "priority", "conditions"),
    [
        ("prerouting", -150, within(DESTINATION, "192.0.2.11/32")),  # it is translated later
        ("prerouting", -50, within(DESTINATION, "169.254.0.0/16")),  # it was translated before
        ("forward", 0, within(DESTINATION, "169.254.0.0/16")),
        ("forward", 0, within(SOURCE, "10.0.0.0/8")),
        ("forward", 0, device("iifname", "eth0")),
        ("postrouting", 300, within(SOURCE, "240.0.0.0/4")),  # masqueraded
        ("input", 0, []),
    ],
)
def test_what_does_not_concern_rodvr_is_no_obstacle(hook, priority, conditions) -> None:
    chain = replace(FORWARD, hook=hook, priority=priority)
    assert obstacles(chain, [*conditions, DROP]) == []


def test_a_daemon_that_is_not_known_has_any_address() -> None:
    anyone = replace(OF, real=None)
    assert obstacles(FORWARD, [*within(DESTINATION, "192.0.2.11/32"), DROP], of=anyone) == []
    assert len(obstacles(FORWARD, [*within(SOURCE, "240.0.0.0/4"), DROP], of=anyone)) == 1


def test_only_before_tracking_a_rule_can_prevent_it() -> None:
    raw = replace(FORWARD, hook="prerouting", priority=-300)
    (problem,) = obstacles(raw, [Untrack()])
    assert "keeps (rule 1 (handle 4) of chain fw) out of connection tracking" in problem
    assert obstacles(replace(raw, priority=-150), [Untrack()]) == []


def test_a_zone_has_to_be_that_of_both_directions() -> None:
    raw = replace(FORWARD, hook="prerouting", priority=-300)
    zone = [Constant(0, b"\5\0"), SetZone(0)]
    assert obstacles(raw, zone) == []
    (problem,) = obstacles(raw, [*device("iifname", "gpu0"), *zone])
    assert "tracked in zone 5 in one direction only" in problem


@pytest.mark.parametrize(
    ("chain", "conditions", "remedy"),
    [
        (
            FORWARD,
            [],
            "nft insert rule inet foreign fw iifname rodvr1 oifname gpu0 accept; "
            "nft insert rule inet foreign fw iifname gpu0 oifname rodvr1 accept",
        ),
        (
            BaseChain("ip", "filter", "FORWARD", Verdict.DROP, "forward", 0),
            [],
            "iptables -I FORWARD -i rodvr1 -o gpu0 -j ACCEPT; "
            "iptables -I FORWARD -i gpu0 -o rodvr1 -j ACCEPT",
        ),
        (
            BaseChain("ip", "raw", "PREROUTING", Verdict.ACCEPT, "prerouting", -300, legacy=True),
            within(SOURCE, "240.0.0.0/4"),
            "iptables-legacy -t raw -I PREROUTING -i rodvr1 -j ACCEPT",
        ),
        (
            BaseChain("ip", "mangle", "POSTROUTING", Verdict.ACCEPT, "postrouting", -150),
            within(DESTINATION, "240.0.0.0/4"),
            "iptables -t mangle -I POSTROUTING -d 240.71.0.0/16 -o rodvr1 -j ACCEPT",
        ),
        (
            replace(FORWARD, hook="prerouting", priority=-300),
            within(SOURCE, "240.0.0.0/4"),
            "nft insert rule inet foreign fw iifname rodvr1 accept",
        ),
    ],
)
def test_an_obstacle_says_what_to_type(chain, conditions, remedy) -> None:
    (problem,) = obstacles(chain, [*conditions, DROP])
    assert problem.startswith(f"{chain} drops (rule 1 (handle 4) of chain {chain.name})")
    assert problem.endswith(f"allow it with: {remedy}")


def test_a_chain_is_one_obstacle_whatever_it_drops() -> None:
    others = [replace(OF, real=Address(f"192.0.2.{host}", 8308)) for host in (12, 13)]
    rules = Rules(lambda _: [Rule((DROP,))])
    assert len(path.obstacles([(FORWARD, rules)], [OF, *others], IDENTITIES)) == 1


def test_chains_of_other_devices_are_not_passed() -> None:
    edge = replace(FORWARD, family="netdev", hook="ingress", devices=("eth0",))
    assert obstacles(edge, [DROP]) == []
    assert len(obstacles(replace(edge, devices=("eth0", "gpu0")), [DROP])) == 1


def test_a_chain_without_a_device_sees_nothing() -> None:
    """Its devices may be gone, or may not be there yet."""
    edge = replace(FORWARD, family="netdev", policy=Verdict.DROP, devices=())
    assert obstacles(replace(edge, hook="ingress")) == []
    assert obstacles(replace(edge, hook="egress")) == []


@pytest.mark.parametrize(
    ("side", "drops"), [("iif", {5, 3}), ("oif", {3, 5})], ids=["comes in", "goes out"]
)
def test_interfaces_may_be_named_by_their_numbers(side: str, drops: set[int]) -> None:
    of = replace(OF, indexes={"rodvr1": 5, "rodvr0": 6, "gpu0": 3})
    for index in range(2, 7):
        rule = [Load(0, f"meta {side}"), Compare(0, index.to_bytes(4, sys.byteorder)), DROP]
        assert bool(obstacles(FORWARD, rule, of=of)) == (index in drops)
        assert obstacles(FORWARD, rule) == [], "it is not known"


def test_chains_for_translation_see_the_first_packet_only() -> None:
    nat = replace(FORWARD, is_nat=True)
    assert obstacles(nat, [*within(DESTINATION, "240.0.0.0/4"), DROP]) == []
    assert len(obstacles(nat, [*within(SOURCE, "240.0.0.0/4"), DROP])) == 1
