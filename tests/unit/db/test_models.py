# SPDX-License-Identifier: Apache-2.0
"""States that must not be are refused by the database itself, whoever writes them."""

from __future__ import annotations

import pytest
import sqlalchemy
from oslo_db import exception as db_exception

from gsaas.db import models
from gsaas.db.database import Database
from tests.support import rows

UNKNOWN = db_exception.DBReferenceError
TWICE = db_exception.DBDuplicateEntry

# What is refused, by which check or as which error; the last row is the impossible one.
IMPOSSIBLE = {
    "a GPU without memory": (
        "ck_gpus_memory_positive",
        [rows.host(), rows.gpu(memory_mb=0)],
    ),
    "a GPU of which more is used than it has": (
        "ck_gpus_never_over_committed",
        [rows.host(), rows.gpu(used_mb=40961)],
    ),
    "a GPU of which less than nothing is used": (
        "ck_gpus_never_over_committed",
        [rows.host(), rows.gpu(used_mb=-1)],
    ),
    "a GPU of which more is reserved than is free": (
        "ck_gpus_never_over_reserved",
        [rows.host(), rows.gpu(used_mb=40000, reserved_mb=961)],
    ),
    "a reservation in no status": (
        "ck_reservations_status",
        [rows.reservation(status="MAYBE")],
    ),
    "a reservation that ends before it begins": (
        "ck_reservations_begins_before_its_end",
        [rows.reservation(end_at=rows.second(1))],
    ),
    "a share of a reservation without memory": (
        "ck_reserved_shares_memory_positive",
        [rows.reservation(), rows.reserved_share(memory_mb=0)],
    ),
    "a share of a reservation that a lease has, and that is not kept": (
        "ck_reserved_shares_claimed_is_kept",
        [rows.reservation(), rows.reserved_share(kept=False, lease_id="lease-1")],
    ),
    "a GPU held exclusively, and not whole": (
        "ck_gpus_exclusive_is_whole",
        [
            rows.host(),
            rows.lease(mode="exclusive", memory_mb=None),
            rows.gpu(exclusive_lease_id="lease-1", used_mb=2048),
        ],
    ),
    "a GPU held exclusively by a lease that is not there": (
        UNKNOWN,
        [rows.host(), rows.gpu(exclusive_lease_id="lease-1", used_mb=40960)],
    ),
    "a GPU of a host that is not there": (UNKNOWN, [rows.gpu()]),
    "a GPU twice": (TWICE, [rows.host(), rows.gpu(), rows.gpu(device_index=1)]),
    "two GPUs with one number on one host": (
        TWICE,
        [rows.host(), rows.gpu("GPU-a"), rows.gpu("GPU-b")],
    ),
    "a daemon on port 0": ("ck_gpus_daemon_port", [rows.host(), rows.gpu(daemon_port=0)]),
    "a daemon beyond the last port": (
        "ck_gpus_daemon_port",
        [rows.host(), rows.gpu(daemon_port=65536)],
    ),
    "a GPU that waits for an operator for no reason": (
        "ck_gpus_waiting_has_reason",
        [rows.host(), rows.gpu(awaits_operator=True)],
    ),
    "a shared lease without memory": (
        "ck_leases_memory_iff_shared",
        [rows.lease(memory_mb=None)],
    ),
    "a shared lease of no memory": ("ck_leases_memory_iff_shared", [rows.lease(memory_mb=0)]),
    "an exclusive lease with memory": (
        "ck_leases_memory_iff_shared",
        [rows.lease(mode="exclusive")],
    ),
    "a lease in no known mode": ("ck_leases_memory_iff_shared", [rows.lease(mode="borrowed")]),
    "a lease of no cGPUs": ("ck_leases_count_positive", [rows.lease(count=0)]),
    "a lease in no known status": ("ck_leases_status", [rows.lease(status="ASLEEP")]),
    "a lease in no known locality": ("ck_leases_locality", [rows.lease(locality="near")]),
    "a lease in ERROR without a fault": (
        "ck_leases_error_has_fault",
        [rows.lease(status="ERROR", fault_step="boot")],
    ),
    "a lease in no known access": ("ck_leases_access", [rows.lease(access="by-chance")]),
    "two cGPUs of one host with one masked address": (
        TWICE,
        [
            rows.host(),
            rows.gpu(),
            rows.lease("lease-1"),
            rows.lease("lease-2"),
            rows.claim("lease-1", masked_host="compute1"),
            rows.claim("lease-2", masked_host="compute1"),
        ],
    ),
    "an active lease without a server": (
        "ck_leases_active_has_server",
        [rows.lease(status="ACTIVE")],
    ),
    "a released lease without the time of it": (
        "ck_leases_released_has_time",
        [rows.lease(status="RELEASED")],
    ),
    "two leases with one server": (
        TWICE,
        [rows.lease("lease-1", server_id="s1"), rows.lease("lease-2", server_id="s1")],
    ),
    "a lease with a server that stands alone": (
        "ck_leases_standalone_has_no_server",
        [rows.lease(has_server=False, server_id="s1")],
    ),
    "a lease that no policy chose for": ("ck_leases_policy_chose", [rows.lease(policy=None)]),
    "a lease that waits since never": ("ck_leases_queued_has_time", [rows.lease(status="QUEUED")]),
    "a GPU that fewer than no leases hold": (
        "ck_gpus_leases",
        [rows.host(), rows.gpu(leases=-1)],
    ),
    "a cGPU whose daemon listens on no port": (
        "ck_claims_daemon_port",
        [rows.host(), rows.gpu(), rows.lease(), rows.claim(daemon_host="gpu1", daemon_port=0)],
    ),
    "a claim of a GPU that is not there": (UNKNOWN, [rows.lease(), rows.claim()]),
    "a claim of a lease that is not there": (UNKNOWN, [rows.host(), rows.gpu(), rows.claim()]),
    "a claim of no memory": (
        "ck_claims_memory_positive",
        [rows.host(), rows.gpu(), rows.lease(), rows.claim(memory_mb=0)],
    ),
    "a masked address with port 0": (
        "ck_claims_masked_port",
        [rows.host(), rows.gpu(), rows.lease(), rows.claim(masked_port=0)],
    ),
    "two cGPUs of one lease behind one masked address": (
        TWICE,
        [
            rows.host(),
            rows.gpu(),
            rows.lease(),
            rows.claim(position=0),
            rows.claim(position=1, masked_ip="169.254.71.1"),
        ],
    ),
    "an endpoint on a host that is not there": (UNKNOWN, [models.EndpointRow(host_name="cpu1")]),
    "an event of a lease that is not there": (
        UNKNOWN,
        [models.LeaseEventRow(lease_id="lease-1", event="claim", status="CLAIMED")],
    ),
}


def refused(by: str | type[Exception]) -> pytest.RaisesExc:
    """Expect the database's refusal, by the check of that name or as that error."""
    if isinstance(by, str):
        # MariaDB's refusals are not among the errors that oslo.db knows.
        return pytest.raises((db_exception.DBError, sqlalchemy.exc.OperationalError), match=by)
    return pytest.raises(by)


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_impossible_states_are_refused(database: Database, what: str):
    refusal, (*lawful, impossible) = IMPOSSIBLE[what]
    lawful = [_copy(row) for row in lawful]
    impossible = _copy(impossible)
    with database.write() as session:
        for row in lawful:
            session.add(row)
            session.flush()
    with refused(refusal), database.write() as session:
        session.add(impossible)


def test_every_check_has_an_impossible_state_to_refuse():
    checks = {
        constraint.name
        for table in models.Base.metadata.tables.values()
        for constraint in table.constraints
        if isinstance(constraint, sqlalchemy.CheckConstraint)
    }
    assert checks == {refusal for refusal, _ in IMPOSSIBLE.values() if isinstance(refusal, str)}


def _copy(row: models.Base) -> models.Base:
    """A new row with the same values: one that was in a session belongs to it for good."""
    values = {key: value for key, value in vars(row).items() if not key.startswith("_")}
    return type(row)(**values)


def test_a_full_and_lawful_cloud_is_accepted(database: Database):
    """The counterpart of the refusals: every kind of row, in each mode, and each kind of end."""
    with database.write() as session:
        session.add_all(
            [
                rows.host(),
                rows.gpu("GPU-a", used_mb=40960),
                rows.gpu("GPU-b", device_index=1),
                rows.lease("shared", count=2, memory_mb=20480),
                rows.lease("exclusive", mode="exclusive", memory_mb=None),
                rows.lease("active", status="ACTIVE", server_id="server-1"),
                rows.lease("alone", status="ACTIVE", has_server=False),
                rows.lease("waiting", status="QUEUED", policy=None, queued_at=rows.second(1)),
                rows.lease("failed", status="ERROR", fault_message="no valid host was found"),
                rows.lease("past", status="RELEASED", released_at=rows.second(1)),
            ]
        )
        session.flush()
        whole = session.get_one(models.GpuRow, "GPU-b")
        whole.used_mb, whole.exclusive_lease_id = 40960, "exclusive"
        session.add_all(
            [
                rows.claim("shared", "GPU-a", position=0, memory_mb=20480),
                rows.claim("shared", "GPU-a", position=1, memory_mb=20480),
                rows.claim("exclusive", "GPU-b", memory_mb=40960),
                models.EndpointRow(host_name="gpu1", report={"bindings": 0}),
                models.LeaseEventRow(lease_id="shared", event="claim", status="CLAIMED"),
            ]
        )


@pytest.mark.parametrize("table", ["gpus", "leases", "hosts"])
def test_what_a_claim_stands_on_cannot_be_deleted(database: Database, table: str):
    with database.write() as session:
        session.add_all([rows.host(), rows.lease(), rows.gpu(used_mb=2048)])
        session.flush()
        session.add(rows.claim())
    with refused(UNKNOWN), database.write() as session:
        session.execute(sqlalchemy.delete(models.Base.metadata.tables[table]))
    with database.read() as session:
        assert session.scalar(sqlalchemy.select(models.ClaimRow)).gpu.host.name == "gpu1"


def test_an_update_that_over_commits_is_refused_and_changes_nothing(database: Database):
    with database.write() as session:
        session.add_all([rows.host(), rows.gpu(used_mb=40000)])
    with refused("ck_gpus_never_over_committed"), database.write() as session:
        session.execute(
            sqlalchemy.update(models.GpuRow).values(used_mb=models.GpuRow.used_mb + 961)
        )
    with database.read() as session:
        assert session.scalar(sqlalchemy.select(models.GpuRow.used_mb)) == 40000


def test_text_may_be_in_any_language_and_case_matters(database: Database):
    with database.write() as session:
        session.add_all([rows.lease("1", name="Обучение 🚀"), rows.lease("2", name="обучение 🚀")])
    with database.read() as session:
        query = sqlalchemy.select(models.LeaseRow.id).where(models.LeaseRow.name == "Обучение 🚀")
        assert session.scalars(query).all() == ["1"]


def test_microseconds_are_kept(database: Database):
    moment = rows.second(0).replace(microsecond=123456)
    with database.write() as session:
        session.add(rows.lease(created_at=moment))
    with database.read() as session:
        assert session.scalar(sqlalchemy.select(models.LeaseRow.created_at)) == moment


def test_a_lease_read_in_a_session_tells_its_real_addresses_after_it(database: Database):
    with database.write() as session:
        session.add_all([rows.host(), rows.lease(), rows.gpu(used_mb=2048)])
        session.flush()
        session.add(rows.claim())
    with database.read() as session:
        lease = session.scalar(sqlalchemy.select(models.LeaseRow))
    (claim,) = lease.claims
    assert (claim.gpu.host.gpu_address, claim.gpu.daemon_port) == ("192.0.2.1", 8308)
