# SPDX-License-Identifier: Apache-2.0
"""What was refused to a VM, in words for its owner."""

from __future__ import annotations

import json

import pytest

from gsaas.objects.refusals import Refusals


@pytest.mark.parametrize(
    ("refusals", "parts"),
    [
        (
            Refusals(30, foreign=3, source="10.0.1.9"),
            ["3 dropped in the last 30 s", "from 10.0.1.9", "it has 10.0.0.5, 10.0.2.9", "src"],
        ),
        (Refusals(30, foreign=3), ["from addresses", "it has 10.0.0.5, 10.0.2.9"]),
        (Refusals(600, not_tcp=1), ["not TCP", "1 dropped in the last 10 min"]),
        (Refusals(30, fragments=2), ["fragments", "2 dropped", "MTU"]),
        (Refusals(30, unmapped=5), ["connections", "5 refused", "does not have", "gsaas env"]),
    ],
)
def test_a_sentence_says_what_was_refused_and_what_to_do(refusals, parts) -> None:
    (sentence,) = refusals.sentences(["10.0.0.5", "10.0.2.9"])
    assert [part for part in parts if part not in sentence] == []


def test_each_kind_of_refusal_has_its_sentence() -> None:
    assert len(Refusals(30, 1, 1, 1, 1).sentences(["10.0.0.5"])) == 4
    assert Refusals(30).sentences(["10.0.0.5"]) == []


def test_refusals_travel_as_json_and_unknown_fields_are_left_out() -> None:
    refusals = Refusals(30, 1, 2, 3, 4, "10.0.1.9")
    assert Refusals.from_dict(json.loads(json.dumps(refusals.to_dict())) | {"new": 1}) == refusals
    assert Refusals.from_dict({"seconds": 5}) == Refusals(5)
