# SPDX-License-Identifier: Apache-2.0
"""A controller whose clock is wrong by 45 seconds ends no lease that is alive, and takes none from its engine."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from collections.abc import Iterator
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

ELSEWHERE = """
import contextlib, io, json, sys, traceback
from gsaas.db import leases
from gsaas.db.database import Database
from tests.services.test_claims_race import open_claims

for line in sys.stdin:
    url, program = json.loads(line)
    database, said, fault = Database.open(url), io.StringIO(), None
    try:
        with contextlib.redirect_stdout(said):
            claims = open_claims(database)
            exec(program, {"database": database, "leases": leases, "claims": claims, "open_claims": open_claims})
    except Exception:
        fault = traceback.format_exc()
    database.close()
    print(json.dumps([said.getvalue(), fault]), flush=True)
"""
"""A process that runs programs, each with the database that it is told."""
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
claims.release("held")
"""


class Elsewhere:
    """Processes whose clocks are wrong, one for each shift: it takes seconds to start one."""

    def __init__(self) -> None:
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def run(self, database: Database, shift: str, program: str = AUDIT) -> str:
        """Run *program* in a process whose clock is wrong; return its output.

        That of `AUDIT` is the lease's status and whether that process now owns it.
        """
        if shift not in self._processes:
            self._processes[shift] = self._start(shift)
        process = self._processes[shift]
        url = database.engine.url.render_as_string(hide_password=False)
        process.stdin.write(json.dumps([url, program]) + "\n")
        process.stdin.flush()
        said, fault = json.loads(process.stdout.readline())
        assert fault is None, fault
        return said.strip()

    def _start(self, shift: str) -> subprocess.Popen[str]:
        library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
        if library is None:
            pytest.fail("libfaketime is missing: apt-get install libfaketime")
        wrong = {"LD_PRELOAD": str(library), "FAKETIME": shift, "DONT_FAKE_MONOTONIC": "1"}
        return subprocess.Popen(
            [sys.executable, "-c", ELSEWHERE],
            env={**os.environ, **wrong},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def end(self) -> None:
        for process in self._processes.values():
            process.communicate()


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    started = Elsewhere()
    yield started
    started.end()


@pytest.mark.parametrize("shift", ["+45s", "-45s", "+0s"])
def test_a_lease_that_is_kept_alive_and_owned_stays_so(
    database: Database, elsewhere: Elsewhere, shift: str
):
    report_cloud(database, hosts=1, gpus_each=1)
    lease = new_lease("held", ONE).with_(has_server=False, keepalive=30)
    claims = open_claims(database)
    claims.claim(lease, ONE)
    with database.writing() as connection:
        kept = leases.keep(connection, "held")
        assert leases.acquire_ownership(connection, kept, "this", 30)
    assert elsewhere.run(database, shift) == f"{Status.CLAIMED} False"


@pytest.mark.parametrize("shift", ["-45s", "+0s"])
def test_a_lease_whose_client_is_silent_is_ended_all_the_same(
    database: Database, elsewhere: Elsewhere, shift: str
):
    report_cloud(database, hosts=1, gpus_each=1)
    lease = new_lease("held", ONE).with_(has_server=False, keepalive=-1)
    open_claims(database).claim(lease, ONE)
    assert elsewhere.run(database, shift).startswith(Status.RELEASING)


@pytest.mark.parametrize("shift", ["-45s", "+45s"])
def test_a_lease_is_released_after_it_was_claimed_and_not_long_after(
    database: Database, elsewhere: Elsewhere, shift: str
):
    report_cloud(database, hosts=1, gpus_each=1)
    claims = open_claims(database)
    claims.claim(new_lease("held", ONE).with_(has_server=False), ONE)
    claims.queue.join(new_lease("waiting", ONE).with_(has_server=False), ONE)
    elsewhere.run(database, shift, RELEASE)
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
    database: Database, elsewhere: Elsewhere, shift: str
):
    report_cloud(database, hosts=1, gpus_each=1)
    elsewhere.run(database, shift, REPORT)
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
    database: Database, elsewhere: Elsewhere, shift: str
):
    report_cloud(database, hosts=1, gpus_each=1)
    assert elsewhere.run(database, shift, NEW_LEASE + ASK) == Status.CLAIMED
    with database.write() as session:
        hosts.get(session, "gpu0").monitor_seen_at -= datetime.timedelta(hours=25)
    assert elsewhere.run(database, shift, NEW_LEASE + ASK).startswith("gsaas.capacity")


GRANT = """
from gsaas.grants.keyring import Keyring

keyring = Keyring(["first:" + "A" * 43], lifetime=300)
"""


@pytest.mark.parametrize(("signed", "shown"), [("-1h", "+1h"), ("+1h", "-1h")])
def test_a_grant_that_one_controller_signs_is_good_at_another(
    database: Database, elsewhere: Elsewhere, signed: str, shown: str
):
    sign = "print(keyring.sign('lease', 'project', database.now()))"
    grant = elsewhere.run(database, signed, GRANT + sign)
    verify = f"print(keyring.verify({grant!r}, database.now()).lease_id)"
    assert elsewhere.run(database, shown, GRANT + verify) == "lease"


WAIT = """

claims = open_claims(database, reserve_for=60)
try:
    print(claims.claim(new_lease("asked", Request(1)), Request(1)).status)
except Exception as refusal:
    print(type(refusal).__name__)
"""


@pytest.mark.parametrize("shift", ["-1h", "+1h"])
def test_a_wrong_clock_ends_no_reservation(database: Database, elsewhere: Elsewhere, shift: str):
    """The first in the queue waits for two GPUs, one of which is free; nobody else gets that."""
    report_cloud(database, hosts=1, gpus_each=2)
    claims = open_claims(database)
    claims.claim(new_lease("held", ONE), ONE)
    claims.queue.join(new_lease("waiting", Request(2)), Request(2))
    assert elsewhere.run(database, shift, NEW_LEASE + WAIT) == "NoCapacity"
