# SPDX-License-Identifier: Apache-2.0
"""Reports of endpoints, and of monitors on daemons and fences: what is odd in them, and what that must not hide."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsaas.engine.host_reports import UNREADABLE, endpoint_report, gpu_host_report
from gsaas.objects.received import LeftOut
from tests.support.spoilt import spoil

DAEMON: dict[str, Any] = {
    "lease_id": "lease-1",
    "position": 0,
    "gpu_uuid": "GPU-a",
    "port": 20000,
    "memory_mb": 1024,
    "state": "healthy",
    "restarts": 2,
    "detail": None,
    "failed_starts": 0,
}
FENCE: dict[str, Any] = {"admissions": ["192.0.2.7:8308", "192.0.2.8:8308"], "refused": 3}
MONITOR: dict[str, Any] = {
    "serial": 7,
    "daemons": {"lease-1-0": DAEMON, "lease-2-0": {**DAEMON, "lease_id": "lease-2"}},
    "fence": FENCE,
    "problems": ["a problem"],
    "middleware": "1.0",
    "release": "1.2.3",
}
ENDPOINT: dict[str, Any] = {
    "bindings": {
        "port-1": {
            "installed": True,
            "seconds": 0.1,
            "dropped_packets": {"unmapped": 1, "refused": 2},
        },
        "port-2": {"installed": False, "seconds": None},
    },
    "problems": [],
    "gpu_address": "192.0.2.21",
    "conntrack": {"entries": 1, "limit": 2},
    "traffic": {"port-1": {"sent": 1, "received": 2, "connections": 3}},
    "release": "1.2.3",
}


def test_what_is_valid_is_stored_as_it_is():
    left_out = LeftOut()
    assert gpu_host_report(MONITOR, left_out) == MONITOR
    assert endpoint_report(ENDPOINT, left_out) == ENDPOINT
    assert endpoint_report({"bindings": {}, "of a newer release": 1}, left_out) == {"bindings": {}}
    assert left_out.told() == []


@pytest.mark.parametrize(
    ("odd", "stored"),
    [
        ({"state": "splendid"}, {"state": "unresponsive"}),
        ({"restarts": -1}, {"restarts": 0}),
        ({"failed_starts": "many"}, {"failed_starts": 0}),
        ({"detail": 17}, {"detail": None}),
        ({"memory_mb": 0}, {"memory_mb": None}),
        ({"lease_id": 17}, {"lease_id": ""}),
        ({"gpu_uuid": ""}, {"gpu_uuid": ""}),
        ({"port": 65536}, {"port": 0}),
    ],
)
def test_a_daemon_with_an_odd_value_is_still_there(odd, stored):
    left_out = LeftOut()
    daemons = {**MONITOR["daemons"], "lease-1-0": {**DAEMON, **odd}}
    found = gpu_host_report({**MONITOR, "daemons": daemons}, left_out)
    expected = {**MONITOR["daemons"], "lease-1-0": {**DAEMON, **stored}}
    problems = [*left_out.told(), "a problem"]
    assert found == {**MONITOR, "daemons": expected, "problems": problems}
    assert left_out.count == 1
    assert left_out.first.startswith(f"daemon lease-1-0, {next(iter(odd))}: ")


def test_a_daemon_of_which_nothing_is_known_belongs_to_some_lease():
    (status,) = gpu_host_report({**MONITOR, "daemons": {"x": 1}})["daemons"].values()
    assert (status["lease_id"], status["state"]) == ("", "unresponsive")


@pytest.mark.parametrize(
    ("odd", "admissions"),
    [
        ({"admissions": ["192.0.2.7:8308", 17], "refused": 3}, ["192.0.2.7:8308", UNREADABLE]),
        ({"admissions": "everybody", "refused": 3}, [UNREADABLE]),
        ({"refused": 3}, [UNREADABLE]),
        (17, [UNREADABLE]),
    ],
)
def test_an_admission_that_cannot_be_read_is_not_taken_for_none(odd, admissions):
    found = gpu_host_report({**MONITOR, "fence": odd})
    assert found["fence"]["admissions"] == admissions


def test_an_odd_binding_is_not_installed_and_still_there():
    left_out = LeftOut()
    odd = {**ENDPOINT["bindings"], "port-1": {"installed": "yes", "seconds": float("nan")}}
    found = endpoint_report({**ENDPOINT, "bindings": odd}, left_out)
    assert found["bindings"] == {
        "port-1": {"installed": False, "seconds": None},
        "port-2": ENDPOINT["bindings"]["port-2"],
    }
    assert left_out.count == 2


def test_odd_traffic_of_one_port_is_left_out_alone():
    lacking, negative = {"sent": 1, "received": 2}, {"sent": -1, "received": 2, "connections": 3}
    traffic = {**ENDPOINT["traffic"], "port-2": lacking, "port-3": negative}
    found = endpoint_report({**ENDPOINT, "traffic": traffic})
    assert found["traffic"] == ENDPOINT["traffic"]


@pytest.mark.parametrize(
    "change",
    [{"serial": -1}, {"serial": True}, {"serial": None}, {"daemons": []}, {"daemons": None}],
)
def test_without_serial_or_daemons_it_is_no_report(change):
    with pytest.raises(ValueError, match="the monitor has sent an invalid report"):
        gpu_host_report({**MONITOR, **change})


@pytest.mark.parametrize("key", ["serial", "daemons", "fence"])
def test_nor_without_the_fields(key):
    with pytest.raises(ValueError, match="the monitor has sent an invalid report"):
        gpu_host_report({name: value for name, value in MONITOR.items() if name != key})


@given(data=st.data())
def test_nothing_seems_gone_because_a_value_of_it_is_odd(data):
    """The engine would give its GPU to another lease, while somebody can reach it."""
    daemons = {**MONITOR["daemons"], "lease-1-0": spoil(data, DAEMON)}
    fence = spoil(data, FENCE)
    sent = json.loads(json.dumps({**MONITOR, "daemons": daemons, "fence": fence}))
    found = gpu_host_report(sent)
    assert found["daemons"].keys() == MONITOR["daemons"].keys()
    assert found["daemons"]["lease-2-0"] == MONITOR["daemons"]["lease-2-0"]
    json.dumps(found, allow_nan=False)
    if fence is not None:
        listed = fence.get("admissions") if isinstance(fence, dict) else None
        count = len(listed) if isinstance(listed, list) else 1
        assert len(found["fence"]["admissions"]) == count


@given(data=st.data())
def test_a_binding_does_not_either(data):
    bindings = {**ENDPOINT["bindings"], "port-1": spoil(data, ENDPOINT["bindings"]["port-1"])}
    report = {name: spoil(data, value) for name, value in ENDPOINT.items() if name != "bindings"}
    found = endpoint_report(json.loads(json.dumps({**report, "bindings": bindings})))
    assert found["bindings"].keys() == ENDPOINT["bindings"].keys()
    assert found["bindings"]["port-2"] == ENDPOINT["bindings"]["port-2"]
    json.dumps(found, allow_nan=False)
