# SPDX-License-Identifier: Apache-2.0
"""What travels between the engine and a GPU host."""

from __future__ import annotations

import json

import pytest

from gsaas.objects.daemon import (
    Admission,
    Daemon,
    DaemonReport,
    DaemonState,
    DaemonStatus,
    DesiredState,
    FenceReport,
)

DAEMON = Daemon("GPU-1", 20000, 1024, "lease-1", 1)
BOTH = Daemon("GPU-2", 20001, 1024, "lease-2", 0, ("GPU-1",))
THREE_PORTS = Daemon("GPU-2", 20002, 1024, "lease-3", 0, ports=3)


def test_what_is_wanted_survives_the_journey():
    wanted = DesiredState(
        7,
        frozenset({DAEMON, BOTH, THREE_PORTS, Daemon("MIG-1/2", 8308)}),
        frozenset({Admission("192.0.2.1", 20000)}),
    )
    assert DesiredState.from_dict(json.loads(json.dumps(wanted.to_dict()))) == wanted


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"serial": 1, "daemons": [{"gpu_uuid": "GPU-1", "port": 0}], "admissions": []},
        {"serial": 1, "daemons": [{"gpu_uuid": "G", "port": 65535, "ports": 2}], "admissions": []},
        {"serial": 1, "daemons": [{"gpu_uuid": "G", "port": 9, "ports": 0}], "admissions": []},
        {"serial": 1, "daemons": [{"gpu_uuid": "a b", "port": 1}], "admissions": []},
        {
            "serial": 1,
            "daemons": [{"gpu_uuid": "G", "port": 1, "lease_id": "../x"}],
            "admissions": [],
        },
        {"serial": 1, "daemons": [], "admissions": [{"address": "all", "port": 1}]},
        {"serial": 1, "daemons": [], "admissions": [{"address": "1.2.3.4", "port": 70000}]},
        {"serial": 1, "daemons": [{"nothing": 1}], "admissions": []},
    ],
)
def test_what_is_nonsense_is_refused(wrong):
    with pytest.raises((ValueError, TypeError, KeyError)):
        DesiredState.from_dict(wrong)


def test_a_daemon_with_several_ports_has_its_port_and_those_after_it():
    assert list(THREE_PORTS.all_ports) == [20002, 20003, 20004]
    assert list(DAEMON.all_ports) == [20000]
    assert THREE_PORTS.to_dict()["ports"] == 3
    assert "ports" not in DAEMON.to_dict(), "a monitor of an earlier release would refuse it"


def test_a_daemon_knows_which_cgpu_is_on_which_of_its_gpus():
    assert BOTH.gpus == ("GPU-2", "GPU-1")
    assert [BOTH.position_of(uuid) for uuid in BOTH.gpus] == [0, 1]
    assert BOTH.to_dict()["other_gpus"] == ["GPU-1"]
    assert "other_gpus" not in DAEMON.to_dict(), "a monitor of the release before would refuse it"


def test_a_report_is_plain_json():
    report = DaemonReport(
        3,
        [DaemonStatus(DAEMON, DaemonState.DOWN, 2, "ended with status 1", 1)],
        FenceReport(frozenset({Admission("192.0.2.1", 20000)}), 4),
        ("the disk is full",),
    )
    assert json.loads(json.dumps(report.to_dict())) == {
        "serial": 3,
        "daemons": {
            "lease-1-1": {
                "lease_id": "lease-1",
                "position": 1,
                "gpu_uuid": "GPU-1",
                "port": 20000,
                "memory_mb": 1024,
                "state": "down",
                "restarts": 2,
                "detail": "ended with status 1",
                "failed_starts": 1,
            }
        },
        "fence": {"admissions": ["192.0.2.1:20000"], "refused": 4},
        "problems": ["the disk is full"],
        "middleware": None,
        "knows": ["turn"],
    }
