"""What the gauges are made from is what the tables say, and nothing of history."""

from __future__ import annotations

from gsaas.db import endpoints, metrics
from gsaas.db.database import Database
from gsaas.db.metrics import Agents, Bindings, Gpus
from tests.support import rows


def state(database: Database) -> metrics.State:
    with database.read() as session:
        return metrics.state(session, patience=60)


def add(database: Database, *added: object) -> None:
    for row in added:  # in this order, as one refers to another
        with database.write() as session:
            session.add(row)


def test_an_empty_cloud_has_nothing_of_anything(database):
    assert state(database) == metrics.State(
        leases=dict.fromkeys(("CLAIMED", "BOOTING", "ACTIVE", "RELEASING", "ERROR"), 0),
        cgpus=0,
        gpus={},
        monitors=Agents(0, 0, 0.0),
        endpoints=Agents(0, 0, 0.0),
        bindings=Bindings(dropped={"unmapped": 0, "refused": 0}),
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


def test_gpus_are_added_up_by_model(database):
    add(
        database,
        rows.host("gpu1"),
        rows.host("gpu2", disabled=True),
        rows.gpu("GPU-a", device_index=0, model="A", memory_mb=10),
        rows.gpu("GPU-b", device_index=1, model="A", memory_mb=10, used_mb=4),
        rows.gpu("GPU-c", device_index=2, model="A", memory_mb=10, disabled=True),
        rows.gpu("GPU-d", device_index=3, model="B", memory_mb=20),
        rows.gpu("GPU-e", host_name="gpu2", model="B", memory_mb=20),
    )
    assert state(database).gpus == {
        "A": Gpus(known=3, idle=1, withheld=1, memory_mb=30, used_mb=4),
        "B": Gpus(known=2, idle=1, withheld=1, memory_mb=40, used_mb=0),
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
