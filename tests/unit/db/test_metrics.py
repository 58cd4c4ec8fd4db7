# SPDX-License-Identifier: Apache-2.0
"""What the gauges are made from is what the tables say, and nothing of history."""

from __future__ import annotations

import datetime

from oslo_utils import timeutils

from gsaas.db import endpoints, metrics, models
from gsaas.db.database import Database
from gsaas.db.metrics import (
    AgentTotals,
    BindingTotals,
    DaemonTotals,
    GpuGauge,
    GpuTotals,
    Verified,
)
from gsaas.objects.daemon import DaemonState
from tests.support import rows


def state(database: Database) -> metrics.CloudState:
    with database.read() as session:
        return metrics.state(session, timeout=60)


def add(database: Database, *added: object) -> None:
    for row in added:  # in this order, as one refers to another
        with database.write() as session:
            session.add(row)


def test_an_empty_cloud_has_nothing_of_anything(database):
    assert state(database) == metrics.CloudState(
        leases=dict.fromkeys(("QUEUED", "CLAIMED", "BOOTING", "ACTIVE", "RELEASING", "ERROR"), 0),
        degraded=0,
        longest_wait=0.0,
        cgpus=0,
        disputed=0,
        gpus={},
        monitors=AgentTotals(0, 0, 0.0),
        endpoints=AgentTotals(0, 0, 0.0),
        bindings=BindingTotals(dropped={"unmapped": 0, "refused": 0}),
        daemons=DaemonTotals(dict.fromkeys(map(str, DaemonState), 0)),
        verified=Verified(),
    )


def test_released_leases_are_not_counted(database):
    add(
        database,
        rows.lease("lease-1", status="RELEASED", released_at=rows.second(1)),
        rows.lease("lease-2"),
        rows.lease("lease-3", status="ERROR", fault_message="no"),
    )
    found = state(database).leases
    assert {status: number for status, number in found.items() if number} == {
        "CLAIMED": 1,
        "ERROR": 1,
    }


def test_gpus_are_added_up_by_model_and_kind(database):
    add(
        database,
        rows.host("gpu1"),
        rows.host("gpu2", disabled=True),
        rows.gpu("GPU-a", device_index=0, model="A", memory_mb=10),
        rows.gpu("GPU-b", device_index=1, model="A", memory_mb=10, used_mb=4),
        rows.gpu("GPU-c", device_index=2, model="A", memory_mb=10, disabled=True),
        rows.gpu("GPU-d", device_index=3, model="B", memory_mb=20),
        rows.gpu("GPU-f", device_index=4, model="B", memory_mb=20, reserved_mb=6),
        rows.gpu("GPU-e", host_name="gpu2", model="B", memory_mb=20),
        rows.gpu("CPU-a", device_index=5, model="B", memory_mb=5, used_mb=1),
    )
    assert state(database).gpus == {
        ("A", "cuda"): GpuTotals(
            known=3, idle=1, withheld=1, memory_mb=30, used_mb=4, reserved_mb=0
        ),
        ("B", "cuda"): GpuTotals(
            known=3, idle=1, withheld=1, memory_mb=60, used_mb=0, reserved_mb=6
        ),
        ("B", "cpu"): GpuTotals(known=1, idle=0, withheld=0, memory_mb=5, used_mb=1, reserved_mb=0),
    }


def test_an_agent_is_silent_after_a_while(database):
    add(
        database,
        rows.host("gpu1", monitor_seen_at=rows.second(1)),
        rows.host("compute1"),  # which has no monitor
    )
    with database.write() as session:
        endpoints.register(session, "compute1", {"bindings": {}})
    seen = state(database)
    assert (seen.monitors.known, seen.monitors.silent) == (1, 1)
    assert seen.monitors.longest > 60
    assert (seen.endpoints.known, seen.endpoints.silent) == (1, 0)
    assert seen.endpoints.longest < 60


def test_what_monitors_report_of_daemons_and_fences_is_added_up(database):
    def report(*daemons: tuple[str, int], **more: object) -> dict:
        told = {str(n): {"state": s, "restarts": r} for n, (s, r) in enumerate(daemons)}
        return {"serial": 1, "daemons": told, "fence": None, "problems": []} | more

    seen = {"monitor_seen_at": rows.second(1)}
    refusing = {"fence": {"admissions": [], "refused": 5}}
    add(
        database,
        rows.host("gpu1", monitor_report=report(("healthy", 0), ("down", 3), **refusing), **seen),
        rows.host("gpu2", monitor_report=report(("healthy", 1), problems=["no nft"]), **seen),
        rows.host("gpu3", monitor_problems=["no driver"], **seen),
        rows.host("gpu4", monitor_report=report(("down", 9)), disabled=True, **seen),
    )
    found = state(database).daemons
    assert {name: number for name, number in found.states.items() if number} == {
        "healthy": 2,
        "down": 1,
    }
    assert (found.restarts, found.refused, found.with_problems) == (4, 5, 2)


def test_leases_whose_gpus_fail_or_are_silent_are_degraded(database):
    now = timeutils.utcnow()
    add(
        database,
        rows.host("gpu1", monitor_seen_at=now),
        rows.host("gpu2", monitor_seen_at=rows.second(1)),
        rows.gpu("GPU-a"),
        rows.gpu("GPU-b", device_index=1, withdrawn_reason="it fell off the bus"),
        rows.gpu("GPU-c", host_name="gpu2"),
    )
    held = (("well", "GPU-a"), ("failed", "GPU-b"), ("silent", "GPU-c"), ("over", "GPU-b"))
    for name, gpu in held:
        add(database, rows.lease(name), rows.claim(name, gpu))
    with database.write() as session:
        session.get(models.LeaseRow, "over").status = "RELEASING"
    assert state(database).degraded == 2


def test_the_longest_wait_is_that_of_the_first_in_the_queue(database):
    now = timeutils.utcnow()
    for name, minutes in (("first", 61), ("second", 1)):
        at = now - datetime.timedelta(minutes=minutes)
        add(database, rows.lease(name, status="QUEUED", queued_at=at))
    add(database, rows.lease("served", queued_at=rows.second(1)))
    assert 3600 <= state(database).longest_wait < 7200


def test_every_gpu_is_read_with_what_its_monitor_said_last(database):
    add(
        database,
        rows.host("gpu1"),
        rows.gpu("GPU-b", device_index=1, model="A", memory_mb=20),
        rows.gpu("GPU-a", device_index=0, model="A", memory_mb=10, used_mb=4),
        models.GpuReadingRow(
            gpu_uuid="GPU-a",
            at=rows.second(1),
            used_mb=3,
            utilisation=50.0,
            temperature_c=61.5,
            power_w=None,
        ),
    )
    with database.read() as session:
        assert metrics.each_gpu(session) == [
            GpuGauge("gpu1", "GPU-a", "A", 10, 4, 3, 50.0, 61.5, None),
            GpuGauge("gpu1", "GPU-b", "A", 20, 0, None, None, None, None),
        ]
