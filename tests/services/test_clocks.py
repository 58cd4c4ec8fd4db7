# SPDX-License-Identifier: Apache-2.0
"""A controller whose clock is wrong by 45 seconds ends no lease that is alive, and takes none from its engine."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gsaas.db import clock, hosts, leases, processes
from gsaas.db.database import Database
from gsaas.objects.lifecycle import Status
from gsaas.objects.request import Request
from tests.services.test_claims_race import new_lease, open_claims, report_cloud

pytestmark = [
    pytest.mark.services,
    pytest.mark.parametrize("server", ["mariadb", "postgresql"], indirect=True),
]

OPEN = """
import sys
from gsaas.db import leases
from gsaas.db.database import Database
from tests.services.test_claims_race import open_claims

database = Database.open(sys.argv[1])
claims = open_claims(database)
"""
AUDIT = """
claims.run_audit()
with database.writing() as connection:
    lease = leases.get(connection, "held")
    print(lease.status, leases.acquire_ownership(connection, lease, "other", 60))
"""
ONE = Request(1)
NEW_LEASE = """
from gsaas.objects.request import Request
from tests.services.test_claims_race import new_lease
"""


RELEASE = """
claims.queue.leave("waiting")
claims.returns.release("held")
"""


def run_elsewhere(database: Database, shift: str, program: str = AUDIT) -> str:
    """Run *program* in a process whose clock is wrong; return its output.

    That of `AUDIT` is the lease's status and whether that process now owns it.
    """
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    if library is None:
        pytest.fail("libfaketime is missing: apt-get install libfaketime")
    url = database.engine.url.render_as_string(hide_password=False)
    wrong = {"LD_PRELOAD": str(library), "FAKETIME": shift, "DONT_FAKE_MONOTONIC": "1"}
    done = subprocess.run(
        [sys.executable, "-c", OPEN + program, url],
        env={**os.environ, **wrong},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("shift", ["+45s", "-45s", "+0s"])
def test_a_lease_that_is_kept_alive_and_owned_stays_so(database: Database, shift: str):
    report_cloud(database, hosts=1, gpus_each=1)
    lease = new_lease("held", ONE).with_(has_server=False, keepalive=30)
    claims = open_claims(database)
    claims.claim(lease, ONE)
    with database.writing() as connection:
        kept = leases.keep(connection, "held")
        assert leases.acquire_ownership(connection, kept, "this", 30)
    assert run_elsewhere(database, shift) == f"{Status.CLAIMED} False"


@pytest.mark.parametrize("shift", ["-45s", "+0s"])
def test_a_lease_whose_client_is_silent_is_ended_all_the_same(database: Database, shift: str):
    report_cloud(database, hosts=1, gpus_each=1)
    lease = new_lease("held", ONE).with_(has_server=False, keepalive=-1)
    open_claims(database).claim(lease, ONE)
    assert run_elsewhere(database, shift).startswith(Status.RELEASING)


@pytest.mark.parametrize("shift", ["-45s", "+45s"])
def test_a_lease_is_released_after_it_was_claimed_and_not_long_after(
    database: Database, shift: str
):
    report_cloud(database, hosts=1, gpus_each=1)
    claims = open_claims(database)
    claims.claim(new_lease("held", ONE).with_(has_server=False), ONE)
    claims.queue.join(new_lease("waiting", ONE).with_(has_server=False), ONE)
    run_elsewhere(database, shift, RELEASE)
    with database.reading() as connection:
        held, waiting = (leases.get(connection, name) for name in ("held", "waiting"))
        now = clock.now(connection)
    assert held.claimed_at < held.released_at < now
    assert waiting.queued_at < waiting.released_at < now


REPORT = """
from gsaas.db import endpoints, gpus, hosts, processes
from gsaas.objects.gpu_report import GpuInfo

with database.write() as session:
    infos = [GpuInfo("GPU-0-0", 0, "model", 1000, 8308)]
    gpus.register(session, "gpu0", "192.0.2.10", infos)
    endpoints.register(session, "gpu0", {"bindings": {}})
    processes.record(session, "gsaas-engine", "elsewhere")
"""


@pytest.mark.parametrize("shift", ["-1h", "+1h"])
def test_agents_and_processes_that_reported_to_a_wrong_clock_did_so_now(
    database: Database, shift: str
):
    report_cloud(database, hosts=1, gpus_each=1)
    run_elsewhere(database, shift, REPORT)
    with database.read() as session:
        now = clock.now(session.connection())
        host = hosts.get(session, "gpu0")
        [process] = processes.running(session)
        seen = (host.monitor_seen_at, host.endpoint.seen_at, process.seen_at)
    assert all(abs(now - at) < datetime.timedelta(minutes=10) for at in seen)


ASK = """
from gsaas import exceptions

try:
    print(claims.claim(new_lease("asked", Request(1)), Request(1)).status)
except exceptions.GsaasError as refusal:
    print(refusal.code)
"""


@pytest.mark.parametrize("shift", ["-1h", "+1h"])
def test_a_wrong_clock_withholds_no_gpu_of_a_host_that_reports_and_offers_none_of_a_silent_one(
    database: Database, shift: str
):
    report_cloud(database, hosts=1, gpus_each=1)
    assert run_elsewhere(database, shift, NEW_LEASE + ASK) == Status.CLAIMED
    with database.write() as session:
        hosts.get(session, "gpu0").monitor_seen_at -= datetime.timedelta(hours=25)
    assert run_elsewhere(database, shift, NEW_LEASE + ASK).startswith("gsaas.capacity")


GRANT = """
from gsaas.grants.keyring import Keyring

keyring = Keyring(["first:" + "A" * 43], lifetime=300)
"""


@pytest.mark.parametrize(("signed", "shown"), [("-1h", "+1h"), ("+1h", "-1h")])
def test_a_grant_that_one_controller_signs_is_good_at_another(
    database: Database, signed: str, shown: str
):
    sign = "print(keyring.sign('lease', 'project', database.now()))"
    grant = run_elsewhere(database, signed, GRANT + sign)
    verify = f"print(keyring.verify({grant!r}, database.now()).lease_id)"
    assert run_elsewhere(database, shown, GRANT + verify) == "lease"


WAIT = """

claims = open_claims(database, reserve_for=60)
try:
    print(claims.claim(new_lease("asked", Request(1)), Request(1)).status)
except Exception as refusal:
    print(type(refusal).__name__)
"""


@pytest.mark.parametrize("shift", ["-1h", "+1h"])
def test_a_wrong_clock_ends_no_reservation(database: Database, shift: str):
    """The first in the queue waits for two GPUs, one of which is free; nobody else gets that."""
    report_cloud(database, hosts=1, gpus_each=2)
    claims = open_claims(database)
    claims.claim(new_lease("held", ONE), ONE)
    claims.queue.join(new_lease("waiting", Request(2)), Request(2))
    assert run_elsewhere(database, shift, NEW_LEASE + WAIT) == "NoCapacity"
