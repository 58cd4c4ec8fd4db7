# SPDX-License-Identifier: Apache-2.0
"""What rules do with a packet of which not everything is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsaas.rodvr import filters
from gsaas.rodvr.filters import (
    Compare,
    Constant,
    Decide,
    Element,
    IsState,
    Load,
    Lookup,
    Mask,
    Opaque,
    Outcome,
    Packet,
    Rule,
    Rules,
    SetZone,
    Swap,
    Untrack,
    Value,
    Verdict,
    evaluate,
)

ACCEPT, DROP = Decide(Verdict.ACCEPT), Decide(Verdict.DROP)
PACKET = Packet(
    {
        "network": Value(b"\x0a\x00\x00\x05", b"\xff\xff\xff\x00"),
        "meta l4proto": Value.of(b"\x06\0\0\0"),
        "ct state": Value.of((2).to_bytes(4, "little")),
        "ct status": Value.of(filters.DNAT.to_bytes(4, "little")),
    },
    frozenset({"meta skuid"}),
)


def outcome(
    *rules: list[filters.Expression], policy: Verdict = Verdict.ACCEPT, **chains: list[Rule]
) -> Outcome:
    """What a chain with these rules does with the packet."""
    chains["base"] = [Rule(tuple(expressions)) for expressions in rules]
    sets = {("known", b"\x0a\0\0\0"): Element(b"\1\2"), ("verdicts", b"\6"): Element(verdict=DROP)}

    def find(name: str, key: Value) -> Element | bool | None:
        length = 1 if name == "verdicts" else 4
        asked = key.part(0, length)
        return sets.get((name, asked.data), False) if asked.is_known else None

    return evaluate("base", policy, Rules(lambda name: chains.get(name, []), find), PACKET)


def drops(*expressions: filters.Expression) -> bool:
    """Whether a rule with these conditions that drops does so."""
    return outcome([*expressions, DROP]).verdict is Verdict.DROP


@pytest.mark.parametrize(
    ("conditions", "met"),
    [
        ([], True),
        ([Load(0, "network"), Compare(0, b"\x0a")], True),
        ([Load(0, "network"), Compare(0, b"\x0b")], False),
        ([Load(0, "network"), Compare(0, b"\x0b", negated=True)], True),
        ([Load(0, "network"), Compare(0, b"\x0a\0\0\5")], False),  # not known
        ([Load(0, "network"), Compare(0, b"\x0a\0\0\5", negated=True)], False),  # nor this
        ([Load(0, "network"), Compare(0, b"\x0a\1\0\5")], False),
        ([Load(0, "network"), Compare(0, b"\x0a\1\0\5", negated=True)], True),
        (
            [Load(0, "network"), Mask(0, 0, b"\xff\0\0\0", bytes(4)), Compare(0, b"\x0a\0\0\0")],
            True,
        ),
        ([Load(0, "network", 1, 2), Compare(0, b"\0\0")], True),
        ([Load(0, "network", 0, 1), Compare(0, b"\x09", b"\x0b")], True),
        ([Load(0, "network", 0, 1), Compare(0, b"\x0b", b"\x0c")], False),
        ([Load(0, "network", 0, 1), Compare(0, b"\x0b", b"\x0c", negated=True)], True),
        ([Load(0, "network"), Compare(0, b"\x09\0\0\0", b"\x0b\0\0\0")], False),  # not known
        ([Constant(4, b"\1\2"), Swap(0, 4, 2, 2), Compare(0, b"\2\1")], True),
        ([Load(0, "meta l4proto"), Compare(0, b"\6")], True),
        ([Load(0, "meta mark"), Compare(0, bytes(4))], False),  # not known
        ([Load(0, "meta skuid"), Compare(0, bytes(4), negated=True)], False),  # it has none
        ([Opaque("a match")], False),
        ([IsState(2)], True),
        ([IsState(2 | 4, negated=True)], False),
        ([IsState(8)], False),
        ([IsState(1 << 7)], True),  # translated
        ([Constant(0, b"\x0a\0\0\0"), Lookup("known", 0)], True),
        ([Constant(0, b"\x0b\0\0\0"), Lookup("known", 0)], False),
        ([Constant(0, b"\x0b\0\0\0"), Lookup("known", 0, negated=True)], True),
        ([Load(0, "network"), Lookup("known", 0)], False),  # not known
        ([Load(0, "network"), Lookup("known", 0, negated=True)], False),
        ([Constant(0, b"\x0a\0\0\0"), Lookup("known", 0, 8), Compare(8, b"\1\2\0\0")], True),
    ],
)
def test_a_rule_decides_only_about_what_it_certainly_matches(
    conditions: list[filters.Expression], met: bool
) -> None:
    assert drops(*conditions) is met


def test_a_map_of_verdicts_decides() -> None:
    chosen = [Load(0, "meta l4proto"), Lookup("verdicts", 0, gives_verdict=True)]
    assert outcome(chosen).verdict is Verdict.DROP


def test_the_policy_decides_about_what_no_rule_has() -> None:
    assert outcome([Opaque("x"), ACCEPT], policy=Verdict.DROP).verdict is Verdict.DROP
    assert outcome([ACCEPT], [DROP], policy=Verdict.DROP).verdict is Verdict.ACCEPT


def test_an_outcome_names_the_rule_or_the_policy() -> None:
    assert outcome([Opaque("x"), DROP], [DROP]).culprit == "rule 2 of chain base"
    assert outcome(policy=Verdict.DROP).culprit == "the policy of chain base"
    jumped = outcome([Decide(Verdict.JUMP, "other")], other=[Rule((DROP,), 7)])
    assert jumped.culprit == "rule 1 (handle 7) of chain other"


def test_jumps_come_back_and_gotos_do_not() -> None:
    jump, goto = Decide(Verdict.JUMP, "other"), Decide(Verdict.GOTO, "other")
    closed = {"policy": Verdict.DROP}
    assert outcome([jump], [ACCEPT], **closed, other=[]).verdict is Verdict.ACCEPT
    assert outcome([goto], [ACCEPT], **closed, other=[]).verdict is Verdict.DROP
    assert outcome([jump], **closed, other=[Rule((ACCEPT,))]).verdict is Verdict.ACCEPT


def test_return_ends_a_chain() -> None:
    back = [Rule((Decide(Verdict.RETURN),)), Rule((DROP,))]
    assert outcome([Decide(Verdict.JUMP, "other")], other=back).verdict is Verdict.ACCEPT
    assert outcome([Decide(Verdict.RETURN)], [ACCEPT], policy=Verdict.DROP).culprit.startswith(
        "the"
    )


def test_chains_in_a_circle_end() -> None:
    assert outcome([Decide(Verdict.JUMP, "base")], policy=Verdict.DROP).verdict is Verdict.DROP


def test_what_a_rule_does_besides_is_told() -> None:
    done = outcome([Untrack()], [Constant(0, b"\5\0"), SetZone(0)], [DROP])
    assert done.untracked == "rule 1 of chain base"
    assert (done.zone, done.zone_culprit) == (5, "rule 2 of chain base")
    assert outcome([Load(0, "meta mark"), SetZone(0)]).zone is None
    assert outcome([Opaque("x"), Untrack()]).untracked == ""


@given(
    st.binary(min_size=4, max_size=4),
    st.binary(min_size=4, max_size=4),
    st.binary(min_size=4, max_size=4),
)
def test_an_answer_about_what_is_partly_known_holds_for_all_that_it_may_be(
    data: bytes, known: bytes, other: bytes
) -> None:
    answer = Value(data, known).equals(other)
    possible = bytes((d & k) | (o & ~k & 0xFF) for d, k, o in zip(data, known, other, strict=True))
    if answer is True:
        assert data == other
    elif answer is False:
        assert possible != other
    else:
        assert possible == other
