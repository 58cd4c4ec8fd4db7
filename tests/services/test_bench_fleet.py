# SPDX-License-Identifier: Apache-2.0
"""`./dev bench fleet --quick` measures real processes on a real bus, through a restart of the engine and of the bus."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.services,
    pytest.mark.thorough,
    pytest.mark.skipif(os.geteuid() != 0, reason="starts servers under another user"),
]


def test_a_small_fleet_is_measured_from_its_start_to_the_return_of_its_bus():
    command = (sys.executable, "-m", "bench", "fleet", "--quick", "--json")
    done = subprocess.run(command, check=True, capture_output=True, text=True)

    result = json.loads(done.stdout)
    used = [row for row in result["rows"] if "percent_of_a_core" in row]
    phases = ["start", "steady", "launches", "no engine", "no bus"]
    processes = ["engine", "API worker", "MariaDB", "RabbitMQ", "agents (load)"]
    assert [(row["phase"], row["process"]) for row in used] == [
        (phase, process) for phase in phases for process in processes
    ]
    assert all(row["mib"] > 10 for row in used)
    servers = {row["phase"]: row for row in result["rows"] if "messages_s" in row}
    assert list(servers) == phases
    for row in servers.values():
        assert row["messages_s"] > 0
        assert row["rows_written_s"] > 0
        assert (
            row["connections"] >= 6 * 2
        )  # each agent of each host, also while those of a bus that died come back
    sent = {row["phase"]: row for row in result["rows"] if "sent_by_agents" in row}
    assert all(row["sent_by_agents"] > 0 for row in sent.values())
    [launched] = [row for row in result["rows"] if "launches_s" in row]
    assert launched["launches"] > 0
    assert launched["failed"] == 0
    assert not any("problem" in row for row in result["rows"])
    assert {reach["what"].partition(":")[0] for reach in result["reach"]} > {"no engine", "no bus"}
