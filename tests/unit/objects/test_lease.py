# SPDX-License-Identifier: Apache-2.0
"""The lease model and the tables say the same."""

from __future__ import annotations

import dataclasses

import pytest

from gsaas.db.models import ClaimRow, LeaseRow, table_of
from gsaas.objects.lease import Claim, Lease
from tests.support import rows


def columns_of(model: type, *besides: str) -> list[str]:
    return [field.name for field in dataclasses.fields(model) if field.name not in besides]


def test_the_fields_of_a_lease_are_the_columns_of_its_table():
    assert columns_of(Lease, "claims", "others") == list(table_of(LeaseRow).columns.keys())


def test_the_fields_of_a_claim_are_the_columns_of_its_table():
    assert columns_of(Claim, "claimed_gpu") == list(table_of(ClaimRow).columns.keys())


def test_a_lease_cannot_be_changed_and_its_changed_copy_leaves_it_as_it_was():
    lease = rows.new_lease("lease-1")
    with pytest.raises(dataclasses.FrozenInstanceError):
        lease.status = "ERROR"
    renamed = lease.with_(name="inference")
    assert (lease.name, renamed.name) == ("training", "inference")
    assert renamed == dataclasses.replace(lease, name="inference")


def test_a_field_that_a_lease_does_not_have_cannot_be_changed():
    with pytest.raises(TypeError, match="no field named statsu"):
        rows.new_lease("lease-1").with_(statsu="ERROR")


def test_a_claim_that_was_read_without_its_gpu_says_so():
    with pytest.raises(LookupError, match="lease-1/0"):
        _ = Claim("lease-1", 0, "GPU-a", 2048).gpu.daemon_port
