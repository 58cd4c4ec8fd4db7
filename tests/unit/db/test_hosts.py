# SPDX-License-Identifier: Apache-2.0
"""Hosts come into being when their agents report; operators take them out of service, and say when one is gone."""

from __future__ import annotations

import datetime

import pytest
from oslo_utils import timeutils
from sqlalchemy import delete

from gsaas import exceptions
from gsaas.db import endpoints, gpus, hosts, leases, models
from gsaas.db.database import Database
from tests.support import rows


def test_a_host_tells_its_gpus_and_endpoint_after_the_session(database: Database):
    with database.write() as session:
        session.add_all([rows.host(), rows.gpu("GPU-b", device_index=1), rows.gpu("GPU-a")])
        endpoints.register(session, "gpu1", {"bindings": 3})
    with database.read() as session:
        host = hosts.get(session, "gpu1")
    assert [gpu.uuid for gpu in host.gpus] == ["GPU-a", "GPU-b"]
    assert host.endpoint.report == {"bindings": 3}


def test_a_compute_host_without_gpus_is_a_host_too(database: Database):
    with database.write() as session:
        endpoints.register(session, "cpu1", {})
    with database.read() as session:
        host = hosts.get(session, "cpu1")
    assert (host.gpu_address, host.gpus, host.monitor_seen_at) == (None, [], None)


def test_pages_of_hosts_follow_their_names(database: Database):
    with database.write() as session:
        session.add_all([rows.host(name) for name in ("gpu3", "gpu1", "gpu2")])
    with database.read() as session:
        first = [host.name for host in hosts.page(session, limit=2)]
        second = [host.name for host in hosts.page(session, limit=2, marker=first[-1])]
    assert (first, second) == (["gpu1", "gpu2"], ["gpu3"])


def test_disabling_a_host_says_why_and_makes_caches_of_its_gpus_stale(database: Database):
    with database.write() as session:
        session.add_all([rows.host("gpu1"), rows.host("gpu2")])
        session.add_all(
            [
                rows.gpu("GPU-a", generation=5),
                rows.gpu("GPU-b", device_index=1, generation=7),
                rows.gpu("GPU-c", host_name="gpu2", generation=9),
            ]
        )
    with database.write() as session:
        hosts.set_disabled(session, "gpu1", True, "a fan is to be replaced")
    with database.read() as session:
        first, second = hosts.page(session, limit=10)
    assert (first.disabled, first.disabled_reason) == (True, "a fan is to be replaced")
    assert [gpu.generation for gpu in first.gpus] == [6, 8]
    assert (second.disabled, [gpu.generation for gpu in second.gpus]) == (False, [9])
    with database.write() as session:
        host = hosts.set_disabled(session, "gpu1", False)
    assert (host.disabled, host.disabled_reason) == (False, None)
    assert [gpu.generation for gpu in host.gpus] == [7, 9]


def test_a_host_that_is_not_there_is_named(database: Database):
    with database.write() as session:
        with pytest.raises(exceptions.NotFound, match="there is no host gpu9"):
            hosts.get(session, "gpu9")
        with pytest.raises(exceptions.NotFound, match="there is no host gpu9"):
            hosts.set_disabled(session, "gpu9", True)


LONG_AGO = timeutils.utcnow() - datetime.timedelta(hours=1)


@pytest.fixture
def cloud(database: Database) -> Database:
    """Two silent GPU hosts of one GPU each, and a silent compute host."""
    with database.write() as session:
        for name in ("gpu1", "gpu2"):
            session.add(rows.host(name, monitor_seen_at=LONG_AGO))
            session.add(rows.gpu(f"GPU-{name}", host_name=name))
        endpoints.register(session, "compute1", {"bindings": {}})
        endpoints.get(session, "compute1").seen_at = LONG_AGO
    return database


def hold(database: Database, lease_id: str, *uuids: str, **columns: object) -> None:
    """Have a lease hold 2048 MiB of each of these GPUs."""
    if columns.get("status") == "ERROR":
        columns |= {"fault_step": "boot-server", "fault_message": "no valid host"}
    with database.write() as session:
        session.add(rows.lease(lease_id, count=len(uuids), **columns))
        session.flush()
        for position, uuid in enumerate(uuids):
            session.add(rows.claim(lease_id, uuid, position=position))
            gpus.get(session, uuid).used_mb += 2048


def forget(database: Database, name: str, **options: object) -> hosts.Forgotten:
    with database.write() as session:
        return hosts.forget(session, name, **{"timeout": 60, "servers_stay": True, **options})


def known(database: Database) -> list[str]:
    with database.read() as session:
        return [host.name for host in hosts.page(session, limit=10)]


def test_a_host_that_nobody_uses_is_forgotten_at_once_with_all_its_rows(cloud: Database):
    assert forget(cloud, "gpu1") == hosts.Forgotten([], [])
    assert forget(cloud, "compute1") == hosts.Forgotten([], [])
    assert known(cloud) == ["gpu2"]
    with cloud.read() as session:
        assert [gpu.uuid for gpu in gpus.page(session, limit=10)] == ["GPU-gpu2"]
        assert endpoints.page(session, limit=10) == []
        assert not hosts.has_forgotten(session)


@pytest.mark.parametrize("status", ["CLAIMED", "BOOTING", "ACTIVE"])
def test_leases_that_hold_gpus_of_a_lost_host_fail_and_say_how_many_they_lost(
    cloud: Database, status: str
):
    hold(cloud, "lease-1", "GPU-gpu1", "GPU-gpu2", status=status, server_id="server-1")
    hold(cloud, "lease-2", "GPU-gpu2", status=status, server_id="server-2")
    assert forget(cloud, "gpu1") == hosts.Forgotten(["lease-1"], [])
    with cloud.read() as session:
        lost, kept = (
            leases.get(session.connection(), "lease-1"),
            leases.get(session.connection(), "lease-2"),
        )
        assert leases.events(session.connection(), "lease-1")[-1].event == "fail"
    assert (lost.status, lost.fault_step) == ("ERROR", "keep-gpus")
    assert "lost 1 of its 2 cGPUs for good" in lost.fault_message
    assert "launch again" in lost.fault_message
    assert "gpu1" not in lost.fault_message
    assert (kept.status, kept.fault_message) == (status, None)


@pytest.mark.parametrize(
    ("status", "servers_stay", "kept"),
    [("ACTIVE", True, True), ("ACTIVE", False, False), ("BOOTING", True, False)],
)
def test_a_server_in_use_is_its_owners_to_keep_where_owners_can(
    cloud: Database, status: str, servers_stay: bool, kept: bool
):
    hold(cloud, "lease-1", "GPU-gpu1", status=status, server_id="server-1", server_host="compute1")
    forget(cloud, "gpu1", servers_stay=servers_stay)
    with cloud.read() as session:
        lease = leases.get(session.connection(), "lease-1")
    assert (lease.server_id is None) == kept
    assert ("server-1" in lease.fault_message) == kept


@pytest.mark.parametrize("status", ["RELEASING", "ERROR"])
def test_leases_that_are_over_already_only_go_on_giving_back(cloud: Database, status: str):
    hold(cloud, "lease-1", "GPU-gpu1", status=status)
    assert forget(cloud, "gpu1") == hosts.Forgotten([], [])
    with cloud.read() as session:
        assert leases.get(session.connection(), "lease-1").status == status


def test_a_lost_host_offers_nothing_and_goes_when_its_last_gpu_was_given_back(cloud: Database):
    hold(cloud, "lease-1", "GPU-gpu1", status="ACTIVE", server_id="server-1")
    forget(cloud, "gpu1")
    with cloud.write() as session:
        hosts.delete_forgotten(session)
        host = hosts.get(session, "gpu1")
        assert (host.disabled, host.disabled_reason) == (True, hosts.GONE)
        assert hosts.has_forgotten(session)
    assert forget(cloud, "gpu1") == hosts.Forgotten([], [])
    with cloud.write() as session:
        session.execute(delete(models.ClaimRow))
        gpus.get(session, "GPU-gpu1").used_mb = 0
    with cloud.write() as session:
        hosts.delete_forgotten(session)
    assert known(cloud) == ["compute1", "gpu2"]


def test_a_host_that_comes_back_before_it_is_gone_stays_disabled_until_somebody_looks(
    cloud: Database,
):
    hold(cloud, "lease-1", "GPU-gpu1", status="ACTIVE", server_id="server-1")
    forget(cloud, "gpu1")
    with cloud.write() as session:
        infos = [gpus.GpuInfo("GPU-gpu1", 0, "Quadro M4000", 8192, 8308)]
        gpus.register(session, "gpu1", "192.0.2.1", infos)
        assert not hosts.has_forgotten(session)
        assert hosts.get(session, "gpu1").disabled


def test_who_enables_a_lost_host_takes_his_word_back(cloud: Database):
    hold(cloud, "lease-1", "GPU-gpu1", status="ACTIVE", server_id="server-1")
    forget(cloud, "gpu1")
    with cloud.write() as session:
        hosts.set_disabled(session, "gpu1", False)
        assert not hosts.has_forgotten(session)


def test_what_a_lost_compute_host_held_counts_as_removed(cloud: Database):
    for number, status in enumerate(["ACTIVE", "RELEASING", "ERROR"]):
        columns = {"status": status, "server_id": f"server-{number}", "bound_host": "compute1"}
        hold(cloud, f"lease-{number}", "GPU-gpu1", **columns)
    hold(cloud, "lease-9", "GPU-gpu1", status="ACTIVE", server_id="server-9", bound_host="gpu2")
    answer = forget(cloud, "compute1")
    assert answer == hosts.Forgotten([], ["lease-0", "lease-1", "lease-2"])
    with cloud.read() as session:
        found = {n: leases.get(session.connection(), f"lease-{n}") for n in (0, 1, 2, 9)}
    assert {n: lease.status for n, lease in found.items()} == {
        0: "ACTIVE",
        1: "RELEASING",
        2: "ERROR",
        9: "ACTIVE",
    }
    assert {n: lease.bound_host for n, lease in found.items()} == {
        0: None,
        1: None,
        2: None,
        9: "gpu2",
    }


def test_a_binding_noted_after_its_host_was_forgotten_can_be_forgotten_too(cloud: Database):
    forget(cloud, "compute1")
    hold(cloud, "lease-1", "GPU-gpu1", status="RELEASING", bound_host="compute1")
    assert forget(cloud, "compute1") == hosts.Forgotten([], ["lease-1"])
    with pytest.raises(exceptions.NotFound, match="there is no host compute1"):
        forget(cloud, "compute1")


@pytest.mark.parametrize("agent", ["monitor", "endpoint"])
def test_a_host_is_not_forgotten_while_one_of_its_agents_speaks_unless_forced(
    cloud: Database, agent: str
):
    with cloud.write() as session:
        if agent == "monitor":
            hosts.get(session, "gpu1").monitor_seen_at = timeutils.utcnow()
        else:
            endpoints.register(session, "gpu1", {"bindings": {}})
    hold(cloud, "lease-1", "GPU-gpu1", status="ACTIVE", server_id="server-1")
    with pytest.raises(exceptions.HostAlive, match=r"gpu1 reported 0 s ago.* again in 60 s"):
        forget(cloud, "gpu1")
    with cloud.read() as session:
        assert leases.get(session.connection(), "lease-1").status == "ACTIVE"
        assert not hosts.get(session, "gpu1").disabled
    assert forget(cloud, "gpu1", timeout=None).failed == ["lease-1"]
