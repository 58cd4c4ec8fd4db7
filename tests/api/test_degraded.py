# SPDX-License-Identifier: Apache-2.0
"""A lease whose GPU fails keeps it and is degraded; when the GPU recovers, so does the lease."""

from __future__ import annotations

import datetime

import pytest
from oslo_utils import timeutils

from gsaas.db import gpus, models
from gsaas.objects.gpu_report import GpuInfo

UUIDS = [f"GPU-0001-{index}" for index in range(4)]


def report(world, *, blind: str | None = None, missing: str = "", **reasons: str) -> None:
    """Let the monitor of gpu1 report, with the reasons why some GPUs fail."""
    infos = [
        GpuInfo(
            uuid, index, "Quadro M4000", 8192, 8308, withdrawn=reasons.get(uuid.replace("-", "_"))
        )
        for index, uuid in enumerate(UUIDS)
        if uuid != missing
    ]
    with world.database.write() as session:
        gpus.register(session, "gpu1", "192.168.50.2", [] if blind else infos, blind=blind)


@pytest.fixture
def lease(world) -> str:
    """A lease with a share of the first GPU."""
    shown = world.launch("member", mode="shared", memory_mb=1024, policy="first-fit")
    world.engine.settle()
    with world.database.read() as session:
        assert gpus.leases_on(session, UUIDS) == {"GPU-0001-0": [shown["id"]]}
    return shown["id"]


def condition(world, lease: str, caller: str = "admin") -> tuple:
    shown = world.call(caller, "GET", f"/v1/leases/{lease}").json["lease"]
    return shown["status"], shown["degraded"], shown.get("degraded_reasons")


def test_a_lease_with_all_its_gpus_is_not_degraded(world, lease):
    assert condition(world, lease) == ("ACTIVE", False, [])


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"GPU_0001_0": "it fails: GPU is lost"}, "it fails: GPU is lost"),
        ({"missing": "GPU-0001-0"}, "not reported by its monitor"),
        ({"blind": "the driver is gone"}, "the driver is gone"),
    ],
)
def test_a_lease_is_degraded_while_its_gpu_fails(world, lease, told, reason):
    report(world, **told)
    assert condition(world, lease) == ("ACTIVE", True, [f"GPU GPU-0001-0 on gpu1: {reason}"])
    gpu = world.call("admin", "GET", "/v1/gpus/GPU-0001-0").json["gpu"]
    assert (gpu["withdrawn"], gpu["used_mb"], gpu["leases"]) == (reason, 1024, [lease])
    report(world)
    assert condition(world, lease) == ("ACTIVE", False, [])


def test_a_tenant_sees_that_it_is_degraded_but_no_names(world, lease):
    report(world, GPU_0001_0="lost")
    assert condition(world, lease, "member") == ("ACTIVE", True, None)
    listed = world.call("reader", "GET", "/v1/leases").json["leases"]
    assert [shown["degraded"] for shown in listed] == [True]
    assert "GPU-0001" not in str(listed)


def test_another_gpus_failure_does_not_degrade_it(world, lease):
    report(world, GPU_0001_1="lost")
    assert condition(world, lease) == ("ACTIVE", False, [])


def test_a_failed_gpu_is_not_offered(world):
    report(world, GPU_0001_0="lost", GPU_0001_1="lost")
    check = world.call("member", "POST", "/v1/checks", {"check": {"count": 7}}).json["check"]
    assert (check["fits"], check["code"]) == (False, "gsaas.capacity.busy")
    assert "2 of 8 GPUs have failed" in check["reason"]
    assert world.call("reader", "GET", "/v1/gpus").json["totals"]["idle"] == 6


def test_a_lease_is_degraded_while_its_gpus_host_does_not_report(world, lease):
    def monitor_reported(seconds_ago: float, interval: float | None) -> None:
        with world.database.write() as session:
            host = session.get_one(models.HostRow, "gpu1")
            host.monitor_seen_at = timeutils.utcnow() - datetime.timedelta(seconds=seconds_ago)
            host.monitor_interval = interval

    monitor_reported(36, None)
    silent = ["the monitor of gpu1 does not report"]
    assert condition(world, lease) == ("ACTIVE", True, silent)
    monitor_reported(36, 60)  # it said that it would be so long
    assert condition(world, lease) == ("ACTIVE", False, [])
    monitor_reported(211, 60)
    assert condition(world, lease) == ("ACTIVE", True, silent)


def test_a_lease_is_degraded_while_its_daemon_is_down(world, lease):
    def daemon_is(state: str) -> None:
        with world.database.write() as session:
            host = session.get_one(models.HostRow, "gpu1")
            host.monitor_report = {"daemons": {"gpu-GPU-0001-0": {"state": state}}}

    daemon_is("down")
    assert condition(world, lease)[2] == ["the daemon of GPU GPU-0001-0 on gpu1 is down"]
    daemon_is("healthy")
    assert condition(world, lease) == ("ACTIVE", False, [])


def test_a_lease_that_is_over_is_not_degraded(world, lease):
    report(world, GPU_0001_0="lost")
    world.call("member", "DELETE", f"/v1/leases/{lease}")
    assert condition(world, lease) == ("RELEASING", False, [])


def test_the_command_line_shows_it(desk):
    world = desk.world
    lease = world.launch("member", mode="shared", memory_mb=1024, policy="first-fit")["id"]
    world.engine.settle()
    report(world, GPU_0001_0="it fails: GPU is lost")
    assert "ACTIVE, degraded" in desk.type("list")[1]
    shown = desk.type("show", lease)[1]
    assert "degraded" in shown
    assert "GPU-0001" not in shown
    desk.sit("admin")
    assert "GPU GPU-0001-0 on gpu1: it fails: GPU is lost" in desk.type("show", lease)[1]
    assert "withdrawn: it fails: GPU is lost" in desk.type("gpus")[1]


def test_a_lease_that_waits_for_a_daemon_is_degraded_if_that_is_down(world):
    lease = world.launch("member", mode="shared", memory_mb=1024, policy="first-fit")["id"]

    def daemon_is(state: str, detail: str | None = None) -> None:
        with world.database.write() as session:
            host = session.get_one(models.HostRow, "gpu1")
            status = {"state": state, "detail": detail}
            host.monitor_report = {"daemons": {"gpu-GPU-0001-0": status}}

    daemon_is("unresponsive")
    assert condition(world, lease) == ("CLAIMED", False, [])
    daemon_is("down", "there is no /run/mps/control")
    why = "the daemon of GPU GPU-0001-0 on gpu1 is down: there is no /run/mps/control"
    assert condition(world, lease) == ("CLAIMED", True, [why])


@pytest.mark.parametrize(
    ("caller", "path"),
    [
        ("admin", "/v1/hosts"),
        ("admin", "/v1/hosts/gpu1"),
        ("member", "/v1/leases"),
        ("member", "/v1/leases/{lease}"),
    ],
)
def test_a_request_that_reads_the_database_asks_its_clock_on_the_same_connection(
    world, lease, caller, path, monkeypatch
):
    """With a pool that is used up, a second connection for each request would block them all."""
    monkeypatch.setattr(world.database, "now", lambda: pytest.fail("asked by a second connection"))
    assert world.call(caller, "GET", path.format(lease=lease)).status_code == 200
