# SPDX-License-Identifier: Apache-2.0
"""The rule of quotas: used and requested amounts together may reach the limit, but not exceed it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsaas import exceptions
from gsaas.limits import base

AMOUNTS = st.fixed_dictionaries({name: st.integers(0, 5) for name in base.UNITS})
LIMITS = st.fixed_dictionaries({name: st.integers(-1, 8) for name in base.UNITS})


@given(LIMITS, AMOUNTS, AMOUNTS)
def test_a_request_is_refused_exactly_when_it_would_exceed_a_limit(limits, used, asked):
    over = {
        name for name in base.UNITS if limits[name] >= 0 and used[name] + asked[name] > limits[name]
    }
    try:
        base.check(limits, used, asked)
    except exceptions.QuotaExceeded as error:
        assert {row["name"] for row in error.facts["details"]["quotas"]} == over != set()
    else:
        assert not over


def test_a_refusal_names_used_asked_and_limit_of_every_exceeded_limit():
    limits = {"cgpus": 4, "gpu_memory_mb": 1000, "leases": base.UNLIMITED}
    used = {"cgpus": 3, "gpu_memory_mb": 600, "leases": 9}
    with pytest.raises(exceptions.QuotaExceeded) as refusal:
        base.check(limits, used, base.lease([300, 300]))
    assert str(refusal.value) == (
        "the project's quota does not allow it: 2 cGPUs asked for, 3 of at most 4 in use; "
        "600 MiB of GPU memory asked for, 600 of at most 1000 in use"
    )


def test_a_lease_uses_its_cgpus_their_memory_and_one_lease():
    assert base.lease([1000, 24000]) == {"cgpus": 2, "gpu_memory_mb": 25000, "leases": 1}


@pytest.mark.parametrize(
    ("limits", "limited"), [({}, False), ({"leases": 0}, True), ({"cgpus": 7}, True)]
)
def test_without_a_single_limit_nothing_needs_to_be_counted(limits, limited):
    assert base.limited(base.NO_LIMITS | limits) is limited
