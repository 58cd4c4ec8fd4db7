"""Reading other people's forward chains: is a packet of ours dropped?"""

from __future__ import annotations

import pytest

from gsaas.rodvr.forwarding import (
    BaseChain,
    DeviceMatch,
    Packet,
    Rule,
    Verdict,
    drops,
    legacy_note,
    problem,
)

FIRST, ANSWER = Packet("rodvr1", "gpu0", answer=False), Packet("gpu0", "rodvr1", answer=True)
FROM_US, TO_US = DeviceMatch(outgoing=False, name="rodvr1"), DeviceMatch(True, "rodvr1")
ACCEPT, DROP = Verdict.ACCEPT, Verdict.DROP
CLOSED = BaseChain("ip", "filter", "FORWARD", DROP)
OPEN = BaseChain("ip", "filter", "FORWARD", ACCEPT)


def dropped(chain: BaseChain, chains: dict[str, list[Rule]]) -> list[bool]:
    """Of the first packet, of the answer."""
    return [drops(chain, lambda name: chains.get(name, []), packet) for packet in (FIRST, ANSWER)]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        pytest.param([], [True, True], id="nothing but the policy"),
        pytest.param([Rule(verdict=ACCEPT)], [False, False], id="everything"),
        pytest.param([Rule((FROM_US,), verdict=ACCEPT)], [False, True], id="one way"),
        pytest.param(
            [Rule((FROM_US,), verdict=ACCEPT), Rule((TO_US,), verdict=ACCEPT)],
            [False, False],
            id="both ways",
        ),
        pytest.param(
            [Rule((DeviceMatch(False, "rod", prefix=True),), verdict=ACCEPT)],
            [False, True],
            id="by a name's beginning",
        ),
        pytest.param(
            [Rule((DeviceMatch(True, "eth0", negated=True),), verdict=ACCEPT)],
            [False, False],
            id="all but another device",
        ),
        pytest.param(
            [Rule((DeviceMatch(True, "gpu0", negated=True),), verdict=ACCEPT)],
            [True, False],
            id="all but the GPU NIC",
        ),
        pytest.param(
            [Rule(conditions=frozenset({"payload"}), verdict=ACCEPT)],
            [True, True],
            id="under a condition nobody read",
        ),
        pytest.param(
            [Rule(conditions=frozenset({"ct"}), verdict=ACCEPT)],
            [True, False],
            id="known connections only",
        ),
        pytest.param(
            [Rule(verdict=DROP), Rule(verdict=ACCEPT)], [True, True], id="too late to be reached"
        ),
        pytest.param([Rule(verdict=None), Rule(verdict=ACCEPT)], [False, False], id="after a log"),
    ],
)
def test_a_chain_that_drops_by_default_and_accepts(rules: list[Rule], expected: list[bool]) -> None:
    assert dropped(CLOSED, {"FORWARD": rules}) == expected


def test_a_chain_that_accepts_by_default_may_still_drop() -> None:
    assert dropped(OPEN, {}) == [False, False]
    assert dropped(OPEN, {"FORWARD": [Rule(verdict=DROP)]}) == [True, True]
    doubtful = Rule(conditions=frozenset({"ct"}), verdict=DROP)
    assert dropped(OPEN, {"FORWARD": [doubtful]}) == [False, False]


def test_jumps_come_back_and_gotos_do_not() -> None:
    after = Rule(verdict=ACCEPT)
    jump, goto = Rule(verdict=Verdict.JUMP, target="x"), Rule(verdict=Verdict.GOTO, target="x")
    assert dropped(CLOSED, {"FORWARD": [jump, after], "x": []}) == [False, False]
    assert dropped(CLOSED, {"FORWARD": [goto, after], "x": []}) == [True, True]
    assert dropped(CLOSED, {"FORWARD": [jump], "x": [Rule(verdict=ACCEPT)]}) == [False, False]


def test_return_ends_a_chain() -> None:
    back = Rule(verdict=Verdict.RETURN)
    jump = Rule(verdict=Verdict.JUMP, target="x")
    chains = {"FORWARD": [jump, Rule(verdict=ACCEPT)], "x": [back, Rule(verdict=DROP)]}
    assert dropped(CLOSED, chains) == [False, False]


def test_chains_in_a_circle_end() -> None:
    circle = [Rule(verdict=Verdict.JUMP, target="FORWARD")]
    assert dropped(CLOSED, {"FORWARD": circle}) == [True, True]


def test_a_problem_says_what_to_type() -> None:
    assert problem(CLOSED, "gpu0", "rodvr1").endswith(
        "allow it with: iptables -I FORWARD -i rodvr1 -o gpu0 -j ACCEPT; "
        "iptables -I FORWARD -i gpu0 -o rodvr1 -j ACCEPT"
    )
    chain = BaseChain("inet", "firewalld", "filter_FORWARD", DROP)
    text = problem(chain, "gpu0", "rodvr1")
    assert "nft insert rule inet firewalld filter_FORWARD iifname rodvr1 oifname gpu0" in text
    assert "iptables-legacy -I FORWARD" in legacy_note("gpu0", "rodvr1")
