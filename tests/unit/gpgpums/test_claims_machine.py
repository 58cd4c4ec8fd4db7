# SPDX-License-Identifier: Apache-2.0
"""Any sequence of claims, releases and changes of the inventory, by two workers, keeps the books right.

Each worker has its own picture of the cloud, and hears of the other's doings only through the
database. Whatever one of them answers must be what the plain rules say of the database as it is.
"""

from __future__ import annotations

import datetime
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
)
from sqlalchemy import select

from gsaas import exceptions
from gsaas.db import endpoints, gpus, hosts, models, pool_versions
from gsaas.db.database import Database
from gsaas.gpgpums import policies
from gsaas.objects.gpu import Gpu, WithheldReason
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.placement import Placement, Refusal
from gsaas.objects.request import Request
from tests.support import sqlite
from tests.support.scheduling import mix_of, open_claims
from tests.unit.gpgpums import reference, strategies

pytestmark = pytest.mark.slow

HEARTBEAT_TIMEOUT = 35
ONE_OF_A_KIND = {"count": 1, "locality": "any", "hosts": "any", "host": None, "consumer_host": None}
WORKERS = st.sampled_from([0, 1])
POLICIES = st.sampled_from(policies.names())
SOME_HOST = st.sampled_from(strategies.HOSTS)


class Books(RuleBasedStateMachine):
    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.databases = self.open()
        self.database = self.databases[0]
        self.workers = [
            open_claims(
                self.databases[number % len(self.databases)],
                attempts=2,
                heartbeat_timeout=HEARTBEAT_TIMEOUT,
            )
            for number in range(2)
        ]
        self.serial = itertools.count()
        self.held: dict[str, dict[str, int]] = {}
        """What each lease took of each GPU, by our own account."""

    def open(self) -> Sequence[Database]:
        """Open an empty database; where it has several servers, by each of them: the workers use them in turn."""
        return [sqlite.in_memory(sqlite.tables())]

    def close(self) -> None:
        self.database.close()

    def teardown(self) -> None:
        for lease_id in list(self.held):
            self.workers[0].release(lease_id)
        with self.database.read() as session:
            assert session.scalars(select(models.GpuRow.used_mb)).all() == [0] * len(self.cloud())
        self.close()

    @initialize()
    def two_hosts_report(self):
        self.a_monitor_reports("a", [2, 4])
        self.a_monitor_reports("b", [3])
        self.an_endpoint_reports("b")
        self.an_endpoint_reports("c")

    # What tenants do

    @rule(target=leases, worker=WORKERS, request=strategies.requests(), policy=POLICIES)
    def somebody_claims(self, worker, request, policy):
        before, cloud, hosts = self.rows(), self.cloud(), self.compute_hosts()
        mix = (*mix_of(self.workers[worker]), (request.with_(**ONE_OF_A_KIND), request.count))
        expected = reference.choose(request, cloud, hosts, reference.KEYS[policy], mix)
        lease = Lease(
            status=Status.QUEUED,
            id=f"lease-{next(self.serial)}",
            project_id="project-1",
            user_id="user-1",
            name="training",
            remoting="rcuda",
            **columns(request),
        )
        try:
            lease = self.workers[worker].claim(lease, request, policy)
        except (exceptions.NoCapacity, exceptions.NeverFits):
            assert expected is None
            assert self.rows() == before
            return "no lease"
        assert [claim.gpu_uuid for claim in lease.claims] == expected
        taken: dict[str, int] = {}
        for claim in lease.claims:
            taken[claim.gpu_uuid] = taken.get(claim.gpu_uuid, 0) + claim.memory_mb
        self.held[lease.id] = taken
        return lease.id

    @rule(worker=WORKERS, request=strategies.requests(), policy=POLICIES)
    def somebody_checks(self, worker, request, policy):
        before, key = self.rows(), reference.KEYS[policy]
        answer = self.workers[worker].check(request, policy)

        mix = mix_of(self.workers[worker])
        expected = reference.choose(request, self.cloud(), self.compute_hosts(), key, mix)
        if isinstance(answer, Placement):
            assert [share.gpu_uuid for share in answer.shares] == expected
        else:
            assert isinstance(answer, Refusal)
            assert expected is None
        assert self.rows() == before

    @rule(worker=WORKERS, lease_id=consumes(leases))
    def a_lease_is_released(self, worker, lease_id):
        self.workers[worker].release(lease_id)
        self.held.pop(lease_id, None)

        before = self.rows()
        self.workers[1 - worker].release(lease_id)
        assert self.rows() == before

    # What the cloud does

    @rule(host=SOME_HOST, sizes=st.lists(st.sampled_from(strategies.SIZES), max_size=2))
    def a_monitor_reports(self, host, sizes):
        with self.database.write() as session:
            gpus.register(
                session,
                host,
                "192.0.2.1",
                [
                    gpus.GpuInfo(
                        f"GPU-{host}{index}", index, strategies.MODELS[size % 2], size, 8308
                    )
                    for index, size in enumerate(sizes)
                ],
            )

    @rule(host=SOME_HOST)
    def a_monitor_falls_silent(self, host):
        with self.database.write() as session:
            row = hosts.ensure(session, host)
            if row.monitor_seen_at is not None:
                row.monitor_seen_at -= datetime.timedelta(seconds=HEARTBEAT_TIMEOUT)

    @rule(data=st.data(), disabled=st.booleans())
    def an_operator_disables_or_enables_a_gpu(self, data, disabled):
        uuids = sorted(gpu.uuid for gpu in self.cloud())
        if uuids:
            with self.database.write() as session:
                gpus.set_disabled(session, data.draw(st.sampled_from(uuids)), disabled)

    @rule(host=SOME_HOST, disabled=st.booleans())
    def an_operator_disables_or_enables_a_host(self, host, disabled):
        with self.database.write() as session:
            hosts.ensure(session, host)
            session.flush()
            hosts.set_disabled(session, host, disabled)

    @rule(host=st.sampled_from([*strategies.HOSTS, "d"]))
    def an_endpoint_reports(self, host):
        with self.database.write() as session:
            endpoints.register(session, host, {})

    @rule(host=SOME_HOST)
    def a_compute_host_is_given_up(self, host):
        with self.database.write() as session:
            endpoint = session.get(models.EndpointRow, host)
            if endpoint is not None:
                session.delete(endpoint)
                pool_versions.renew(session, "endpoints")

    # What must hold at every moment

    @invariant()
    def every_gpu_holds_what_its_claims_say_and_no_more(self):
        with self.database.read() as session:
            claimed: dict[str, int] = {}
            for claim in session.scalars(select(models.ClaimRow)):
                claimed[claim.gpu_uuid] = claimed.get(claim.gpu_uuid, 0) + claim.memory_mb
            ours: dict[str, int] = {}
            for taken in self.held.values():
                for uuid, size in taken.items():
                    ours[uuid] = ours.get(uuid, 0) + size
            rows = session.scalars(select(models.GpuRow)).all()
            used = {gpu.uuid: gpu.used_mb for gpu in rows if gpu.used_mb}
            assert used == claimed == ours
            assert all(gpu.used_mb <= gpu.memory_mb for gpu in rows)
            holders = Counter(uuid for taken in self.held.values() for uuid in taken)
            assert {gpu.uuid: gpu.leases for gpu in rows if gpu.leases} == holders

    @invariant()
    def an_exclusive_gpu_has_one_holder(self):
        with self.database.read() as session:
            for gpu in session.scalars(select(models.GpuRow)):
                holders = {lease for lease, taken in self.held.items() if gpu.uuid in taken}
                if gpu.exclusive_lease_id is not None:
                    assert holders == {gpu.exclusive_lease_id}

    # The database as it is, read in the plainest way

    def rows(self) -> list[tuple]:
        return self.rows_of(self.database)

    def rows_of(self, database: Database) -> list[tuple]:
        with database.read() as session:
            tables = models.Base.metadata.sorted_tables
            return [tuple(row) for table in tables for row in session.execute(select(table))]

    def cloud(self) -> list[Gpu]:
        with self.database.read() as session:
            return [
                Gpu(
                    gpu.uuid,
                    gpu.host_name,
                    gpu.device_index,
                    gpu.memory_mb,
                    gpu.used_mb,
                    gpu.exclusive_lease_id is not None,
                    model=gpu.model,
                    leases=gpu.leases,
                    given=gpu.given,
                    withheld=WithheldReason.DISABLED if _is_off(gpu) else None,
                )
                for gpu in session.scalars(select(models.GpuRow))
            ]

    def compute_hosts(self) -> frozenset[str]:
        with self.database.read() as session:
            return frozenset(session.scalars(select(models.EndpointRow.host_name)))


def columns(request: Request) -> dict[str, Any]:
    """What a lease's row says of its request."""
    names = ("count", "mode", "memory_mb", "locality", "consumer_host")
    return {name: getattr(request, name) for name in names} | {
        "requirements": request.requirements()
    }


def _is_off(gpu: models.GpuRow) -> bool:
    oldest = datetime.datetime.now(datetime.UTC).replace(tzinfo=None) - datetime.timedelta(
        seconds=HEARTBEAT_TIMEOUT
    )
    if gpu.disabled or gpu.withdrawn_reason is not None:
        return True
    return gpu.host.disabled or gpu.host.monitor_seen_at < oldest


Books.TestCase.settings = settings(stateful_step_count=25)
TestBooks = Books.TestCase
