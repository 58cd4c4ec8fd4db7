# SPDX-License-Identifier: Apache-2.0
"""The simulator imports leases that have ended from the API."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gsaas.sim import importers
from tests.api.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.build(tmp_path)


def test_leases_that_have_ended_become_a_history(world: World, tmp_path: Path):
    body = {"lease": {"cgpus": {"count": 2, "mode": "shared", "memory_mb": 512, "hosts": "one"}}}
    body["lease"]["server"] = None
    lease = world.call("member", "POST", "/v1/leases", body).json["lease"]
    world.call("member", "DELETE", f"/v1/leases/{lease['id']}")
    listed = world.call("member", "GET", "/v1/leases", query_string={"status": "RELEASED"})
    (tmp_path / "leases.json").write_text(json.dumps(listed.json))
    (demand,) = importers.read("leases", tmp_path / "leases.json")
    assert (demand.count, demand.mode, demand.memory_mb) == (2, "shared", 512)
    assert demand.project == lease["project_id"]
    assert demand.hosts == "one"
    assert demand.duration > 0
