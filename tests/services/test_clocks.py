# SPDX-License-Identifier: Apache-2.0
"""A controller whose clock is wrong by 45 seconds ends no lease that is alive, and takes none from its engine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gsaas.db import clock, leases
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
