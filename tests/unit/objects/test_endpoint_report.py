# SPDX-License-Identifier: Apache-2.0
"""Reports travel as JSON."""

from __future__ import annotations

import json

from gsaas.objects.endpoint_report import BindingReport, ConntrackLevel, EndpointReport, Traffic
from gsaas.objects.refusals import Refusals


def test_a_report_is_plain_json() -> None:
    bindings = {
        "port-1": BindingReport(True, unmapped=2, refused=1, seconds=0.004),
        "port-2": BindingReport(False),
    }
    problems, level = ("something is wrong",), ConntrackLevel(64, 256)
    traffic = {"port-1": Traffic(sent=10, received=20, connections=3)}
    refusals = {"port-1": Refusals(60, foreign=1, source="10.0.1.9")}
    plain = EndpointReport(
        "cmp1", bindings, problems, "192.0.2.1", level, traffic, refusals
    ).to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain == {
        "host": "cmp1",
        "bindings": {
            "port-1": {
                "installed": True,
                "seconds": 0.004,
                "dropped_packets": {"unmapped": 2, "refused": 1},
            },
            "port-2": {
                "installed": False,
                "seconds": None,
                "dropped_packets": {"unmapped": 0, "refused": 0},
            },
        },
        "problems": ["something is wrong"],
        "gpu_address": "192.0.2.1",
        "conntrack": {"entries": 64, "limit": 256},
        "traffic": {"port-1": {"sent": 10, "received": 20, "connections": 3}},
        "refusals": {
            "port-1": {
                "seconds": 60,
                "unmapped": 0,
                "foreign": 1,
                "not_tcp": 0,
                "fragments": 0,
                "source": "10.0.1.9",
            }
        },
    }


def test_a_table_of_connections_without_a_limit_is_never_full() -> None:
    assert ConntrackLevel(1000, 0).ratio == 0
    assert ConntrackLevel(192, 256).ratio == 0.75
