# SPDX-License-Identifier: Apache-2.0
"""Whether forward chains of other programs drop RODVR's packets."""

from __future__ import annotations

import pytest

from gsaas.rodvr.forwarding import (
    BaseChain,
    DeviceMatch,
    ForwardRule,
    Packet,
    Verdict,
    drops,
    legacy_obstacle,
    obstacle,
)

FIRST, REPLY = Packet("rodvr1", "gpu0", reply=False), Packet("gpu0", "rodvr1", reply=True)
FROM_US, TO_US = DeviceMatch(outgoing=False, name="rodvr1"), DeviceMatch(True, "rodvr1")
ACCEPT, DROP = Verdict.ACCEPT, Verdict.DROP
CLOSED = BaseChain("ip", "filter", "FORWARD", DROP)
OPEN = BaseChain("ip", "filter", "FORWARD", ACCEPT)


def dropped(chain: BaseChain, chains: dict[str, list[ForwardRule]]) -> list[bool]:
    """Whether the first packet is dropped, and whether its reply is."""
    return [drops(chain, lambda name: chains.get(name, []), packet) for packet in (FIRST, REPLY)]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        pytest.param([], [True, True], id="nothing but the policy"),
        pytest.param([ForwardRule(verdict=ACCEPT)], [False, False], id="everything"),
        pytest.param([ForwardRule((FROM_US,), verdict=ACCEPT)], [False, True], id="one way"),
        pytest.param(
            [ForwardRule((FROM_US,), verdict=ACCEPT), ForwardRule((TO_US,), verdict=ACCEPT)],
            [False, False],
            id="both ways",
        ),
        pytest.param(
            [ForwardRule((DeviceMatch(False, "rod", prefix=True),), verdict=ACCEPT)],
            [False, True],
            id="by a name's beginning",
        ),
        pytest.param(
            [ForwardRule((DeviceMatch(True, "eth0", negated=True),), verdict=ACCEPT)],
            [False, False],
            id="all but another device",
        ),
        pytest.param(
            [ForwardRule((DeviceMatch(True, "gpu0", negated=True),), verdict=ACCEPT)],
            [True, False],
            id="all but the GPU NIC",
        ),
        pytest.param(
            [ForwardRule(conditions=frozenset({"payload"}), verdict=ACCEPT)],
            [True, True],
            id="under a condition that is not understood",
        ),
        pytest.param(
            [ForwardRule(conditions=frozenset({"ct"}), verdict=ACCEPT)],
            [True, False],
            id="known connections only",
        ),
        pytest.param(
            [ForwardRule(verdict=DROP), ForwardRule(verdict=ACCEPT)],
            [True, True],
            id="too late to be reached",
        ),
        pytest.param(
            [ForwardRule(verdict=None), ForwardRule(verdict=ACCEPT)],
            [False, False],
            id="after a log",
        ),
    ],
)
def test_a_chain_that_drops_by_default_and_accepts(
    rules: list[ForwardRule], expected: list[bool]
) -> None:
    assert dropped(CLOSED, {"FORWARD": rules}) == expected


def test_a_chain_that_accepts_by_default_may_still_drop() -> None:
    assert dropped(OPEN, {}) == [False, False]
    assert dropped(OPEN, {"FORWARD": [ForwardRule(verdict=DROP)]}) == [True, True]
    conditional = ForwardRule(conditions=frozenset({"ct"}), verdict=DROP)
    assert dropped(OPEN, {"FORWARD": [conditional]}) == [False, False]


def test_jumps_come_back_and_gotos_do_not() -> None:
    after = ForwardRule(verdict=ACCEPT)
    jump, goto = (
        ForwardRule(verdict=Verdict.JUMP, target="x"),
        ForwardRule(verdict=Verdict.GOTO, target="x"),
    )
    assert dropped(CLOSED, {"FORWARD": [jump, after], "x": []}) == [False, False]
    assert dropped(CLOSED, {"FORWARD": [goto, after], "x": []}) == [True, True]
    assert dropped(CLOSED, {"FORWARD": [jump], "x": [ForwardRule(verdict=ACCEPT)]}) == [
        False,
        False,
    ]


def test_return_ends_a_chain() -> None:
    back = ForwardRule(verdict=Verdict.RETURN)
    jump = ForwardRule(verdict=Verdict.JUMP, target="x")
    chains = {
        "FORWARD": [jump, ForwardRule(verdict=ACCEPT)],
        "x": [back, ForwardRule(verdict=DROP)],
    }
    assert dropped(CLOSED, chains) == [False, False]


def test_chains_in_a_circle_end() -> None:
    circle = [ForwardRule(verdict=Verdict.JUMP, target="FORWARD")]
    assert dropped(CLOSED, {"FORWARD": circle}) == [True, True]


def test_an_obstacle_says_what_to_type() -> None:
    assert obstacle(CLOSED, "gpu0", "rodvr1").endswith(
        "allow it with: iptables -I FORWARD -i rodvr1 -o gpu0 -j ACCEPT; "
        "iptables -I FORWARD -i gpu0 -o rodvr1 -j ACCEPT"
    )
    chain = BaseChain("inet", "firewalld", "filter_FORWARD", DROP)
    text = obstacle(chain, "gpu0", "rodvr1")
    assert "nft insert rule inet firewalld filter_FORWARD iifname rodvr1 oifname gpu0" in text
    assert "iptables-legacy -I FORWARD" in legacy_obstacle("gpu0", "rodvr1")
