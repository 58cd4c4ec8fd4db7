# SPDX-License-Identifier: Apache-2.0
"""What the properties of a plain server ask for."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator

from gsaas.api.schemas.cgpus import REQUEST
from gsaas.objects import plain_server

TWO_SHARES = {"gsaas:ncgpus": "2", "gsaas:poolmem": "2048", "gsaas:mode": "shared"}


def test_a_server_without_properties_asks_for_nothing():
    assert plain_server.wanted({"hw:cpu_policy": "shared"}, {"owner": "me"}) is None
    assert not plain_server.asks({"hw:cpu_policy": "shared"}, {"owner": "me"})


@pytest.mark.parametrize(
    ("flavor", "metadata"),
    [
        (TWO_SHARES, {}),
        ({}, TWO_SHARES),
        ({"gsaas:ncgpus": "2"}, {"gsaas:poolmem": "2048", "gsaas:mode": "shared"}),
        ({"gsaas:ncgpus": "2", "gsaas:poolmem": "2048"}, {}),
        (TWO_SHARES, {"gsaas:ncgpus": "2"}),  # the same again contradicts nothing
    ],
)
def test_properties_may_be_on_the_flavor_or_in_metadata_or_on_both(flavor, metadata):
    assert plain_server.asks(flavor, metadata)
    assert plain_server.wanted(flavor, metadata) == {
        "count": 2,
        "memory_mb": 2048,
        "mode": "shared",
    }


def test_each_property_is_a_field_of_a_launch_and_a_launch_takes_it():
    every = {
        **TWO_SHARES,
        "gsaas:kind": "cpu",
        "gsaas:locality": "remote",
        "gsaas:policy": "best-fit",
        "gsaas:model": "A100",
        "gsaas:capability": "8.0",
        "gsaas:hosts": "spread",
    }
    cgpus = plain_server.wanted(every, {})
    Draft202012Validator(REQUEST).validate(cgpus)
    assert set(plain_server.FIELDS.values()) == set(REQUEST["properties"])
    assert plain_server.wanted({"gsaas:ncgpus": "1", "gsaas:host": "gpu1"}, {}) == {
        "count": 1,
        "host": "gpu1",
    }


@pytest.mark.parametrize(
    ("flavor", "metadata", "said"),
    [
        ({"gsaas:ncgpus": "2"}, {"gsaas:ncgpus": "8"}, "may not change what the flavor says"),
        ({"gsaas:ngpus": "2"}, {}, "no property 'gsaas:ngpus'"),
        ({}, {"gsaas:mode": "shared"}, "without gsaas:ncgpus"),
        ({}, {"gsaas:ncgpus": "two"}, "gsaas:ncgpus is 'two'"),
        ({}, {"gsaas:ncgpus": "0"}, "whole number from 1"),
        ({}, {"gsaas:ncgpus": "-1"}, "whole number from 1"),
        ({}, {"gsaas:ncgpus": "1" * 10}, "whole number from 1"),
        ({}, {"gsaas:ncgpus": "٢"}, "whole number from 1"),
        (
            {"gsaas:ncgpus": "1", "gsaas:poolmem": "1"},
            {"gsaas:mode": "exclusive"},
            "not valid with gsaas:mode=exclusive",
        ),
        ({}, {"gsaas:ncgpus": "1", "gsaas:mode": "shared"}, "needs gsaas:poolmem"),
        ({}, {"gsaas:ncgpus": "1", "gsaas:mode": "both"}, "one of exclusive, shared"),
        ({}, {"gsaas:ncgpus": "1", "gsaas:locality": "here"}, "one of any, local, remote"),
        ({}, {"gsaas:ncgpus": "1", "gsaas:hosts": "two"}, "one of any, one, spread"),
        ({}, {"gsaas:ncgpus": "1", "gsaas:policy": ""}, "1 to 64"),
        ({}, {"gsaas:ncgpus": "1", "gsaas:model": "A\n2"}, "printable"),
        ({}, {"gsaas:ncgpus": "1", "gsaas:capability": "new"}, "not a compute capability"),
        ({"gsaas:ncgpus": "2", "gsaas:hosts": "spread"}, {"gsaas:host": "gpu1"}, "spread"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_sentence(flavor, metadata, said):
    with pytest.raises(ValueError, match=r".") as refused:
        plain_server.wanted(flavor, metadata)
    assert said in str(refused.value)


def test_an_operator_may_leave_properties_to_flavors_alone():
    with pytest.raises(ValueError, match="only flavors"):
        plain_server.wanted({}, TWO_SHARES, from_metadata=False)
    assert plain_server.wanted(TWO_SHARES, {"owner": "me"}, from_metadata=False) is not None
