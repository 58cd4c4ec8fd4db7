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


def test_what_is_wanted_survives_the_journey():
    wanted = DesiredState(
        7,
        frozenset({DAEMON, Daemon("MIG-1/2", 8308)}),
        frozenset({Admission("192.0.2.1", 20000)}),
    )
    assert DesiredState.from_dict(json.loads(json.dumps(wanted.to_dict()))) == wanted


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"serial": 1, "daemons": [{"gpu_uuid": "GPU-1", "port": 0}], "admissions": []},
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
    }
