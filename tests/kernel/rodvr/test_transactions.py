# SPDX-License-Identifier: Apache-2.0
"""A transaction takes effect as a whole or not at all."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from gsaas.objects.address import Address
from gsaas.rodvr.config import DatapathConfig
from gsaas.rodvr.kernel import Datapath, NetlinkRefused
from gsaas.rodvr.plan import (
    AddChain,
    AddMappings,
    AddReturnPath,
    ChainTag,
    DatapathState,
    DeleteMappings,
    DeleteReturnPath,
)
from tests.kernel.rodvr.lab import G1, G2, VMS, A, Lab, RulesetMonitor

pytestmark = pytest.mark.kernel

IDENTITY = "240.71.0.9"


@pytest.fixture
def datapath(lab: Lab) -> Iterator[Datapath]:
    datapath = Datapath(DatapathConfig("gpu0", lab.compute))
    datapath.apply([], rebuild=not datapath.prepare())
    yield datapath
    datapath.teardown()
    datapath.close()


@pytest.mark.parametrize(
    ("bad", "code", "culprit"),
    [
        (DeleteMappings(IDENTITY, (Address("169.254.71.2", 1),)), errno.ENOENT, "delete from real"),
        (DeleteReturnPath("240.71.0.8"), errno.ENOENT, "delete from back of 240.71.0.8"),
        (AddMappings(IDENTITY, {A: G2}), errno.EEXIST, "add to real of 240.71.0.9"),
    ],
    ids=["mapping", "return path", "other value"],
)
def test_one_refused_step_undoes_all_and_is_named(
    lab: Lab, datapath: Datapath, bad: object, code: int, culprit: str
) -> None:
    with RulesetMonitor(lab) as monitor:
        with pytest.raises(NetlinkRefused, match=culprit) as refusal:
            datapath.apply([AddMappings(IDENTITY, {A: G1}), bad])  # type: ignore[list-item]
        assert refusal.value.errno == code
        assert monitor.changes() == []
    assert lab.map_elements("ip", "real") == []


def test_the_state_is_read_back_as_it_was_written(lab: Lab, datapath: Datapath) -> None:
    tap, _, ip, mac = VMS["vm1"]
    tag = ChainTag(IDENTITY, lab.index(tap), mac, ip, "a port with spaces in its name")
    operations = [
        AddMappings(IDENTITY, {A: G1}),
        AddReturnPath(IDENTITY, tag.return_path),
        AddChain(tap, tag),
    ]
    datapath.apply(operations)
    wanted = DatapathState()
    wanted.commit(operations)
    found = datapath.read()
    assert (found.state, found.intact) == (wanted, True)


def test_more_mappings_than_one_message_holds_are_still_one_transaction(
    lab: Lab, datapath: Datapath
) -> None:
    many = {Address("169.254.71.1", port): G1 for port in range(1, 4001)}
    datapath.apply([AddMappings(IDENTITY, many)])
    assert len(lab.map_elements("ip", "real")) == 4000
    assert datapath.read().state.mappings == {IDENTITY: many}
    with pytest.raises(NetlinkRefused):
        datapath.apply([DeleteMappings(IDENTITY, (*many, A, A))])
    assert len(lab.map_elements("ip", "real")) == 4000
    datapath.apply([DeleteMappings(IDENTITY, tuple(many))])
    assert lab.map_elements("ip", "real") == []
