# SPDX-License-Identifier: Apache-2.0
"""What a check-up says of the message bus, without one."""

from __future__ import annotations

import pytest

import gsaas.conf
from gsaas import rpc
from gsaas.checkup import bus, parts
from gsaas.checkup.findings import Level
from gsaas.rpc.queues import QueueState


@pytest.mark.parametrize(
    ("secrets", "enforce", "level", "run"),
    [
        ([], True, Level.WARN, "gsaas-manage bus permissions"),
        (["s"], False, Level.WARN, "gsaas-manage bus key HOST --role"),
        (["s"], True, Level.OK, None),
    ],
)
def test_operators_are_told_what_to_run_until_only_signed_messages_are_believed(
    secrets, enforce, level, run
):
    found = bus.check_signatures(secrets, enforce=enforce)
    assert found.level == level
    assert (run is None) if found.todo is None else (run in found.todo)


def test_old_agents_are_counted_by_those_who_take_messages():
    queues = {"gsaas-monitor": QueueState(0, 2), "gsaas-rodvr": QueueState(5, 0)}
    (found,) = bus.check_old_agents(queues)
    assert found.said.startswith("2 gsaas-monitor of an older release")
    assert list(bus.check_old_agents({"gsaas-monitor": None})) == []


def test_a_controller_with_the_key_of_an_agent_is_told_what_is_wrong():
    conf = gsaas.conf.load(files=[])
    conf.set_override("host_keys", ["of an agent"], group="bus")
    with pytest.raises(rpc.Misconfigured, match=r"\[bus\]host_keys is set where a controller"):
        rpc.connect(conf, "rabbit://127.0.0.1:1/")
    (found,) = [found for found in parts.check_all(conf) if found.part == bus.PART]
    assert found.level == Level.FAIL
    assert found.said.startswith("[bus]host_keys is set")
    assert found.todo == "correct the section [bus]"
