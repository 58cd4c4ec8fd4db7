# SPDX-License-Identifier: Apache-2.0
"""Processes that claim at once fill host after host, although each of them begins at GPUs of its own."""

from __future__ import annotations

import threading
from concurrent.futures import ProcessPoolExecutor

import pytest
from oslo_utils import timeutils
from sqlalchemy import distinct, func, insert, select

from gsaas.db import models
from gsaas.db.database import Database
from gsaas.objects.request import Request
from tests.services.test_claims_race import new_lease
from tests.support.racing import PROCESSES
from tests.support.scheduling import open_claims
from tests.support.waiting import PATIENCE

pytestmark = [
    pytest.mark.services,
    pytest.mark.parametrize("server", ["mariadb", "postgresql"], indirect=True),
]

NUMBER = 4
CLAIMS = 1000
GPUS = 8000
GPUS_PER_HOST = 8
MOST_HOSTS = 140
"""125 are the least."""


def test_four_processes_with_best_fit_use_few_hosts(database: Database):
    hosts = [f"gpu{number:04}" for number in range(GPUS // GPUS_PER_HOST)]
    now = timeutils.utcnow()
    rows = [
        {
            "uuid": f"GPU-{number:05}",
            "host_name": hosts[number // GPUS_PER_HOST],
            "device_index": number % GPUS_PER_HOST,
            "model": "model",
            "memory_mb": 1000,
            "daemon_port": 8308,
        }
        for number in range(GPUS)
    ]
    with database.writing() as connection:
        connection.execute(
            insert(models.HostRow), [{"name": name, "monitor_seen_at": now} for name in hosts]
        )
        connection.execute(insert(models.GpuRow), rows)

    url = database.engine.url.render_as_string(hide_password=False)
    with (
        PROCESSES.Manager() as manager,
        ProcessPoolExecutor(NUMBER, mp_context=PROCESSES) as executor,
    ):
        start = manager.Barrier(NUMBER)
        claiming = [executor.submit(claim, url, number, start) for number in range(NUMBER)]
        assert [one.result(PATIENCE) for one in claiming] == [CLAIMS // NUMBER] * NUMBER

    used = select(func.count(), func.count(distinct(models.GpuRow.host_name)))
    with database.reading() as connection:
        gpus, used_hosts = connection.execute(used.where(models.GpuRow.used_mb > 0)).one()
    assert gpus == CLAIMS
    assert used_hosts <= MOST_HOSTS


def claim(url: str, number: int, start: threading.Barrier) -> int:
    """Claim a GPU for one lease after the other; return for how many."""
    database = Database.open(url)
    claims = open_claims(database, subset_size=1024, heartbeat_timeout=24 * 3600)
    start.wait(PATIENCE)
    leases = [
        claims.claim(new_lease(f"lease-{number}-{turn}", Request(1)), Request(1), "best-fit")
        for turn in range(CLAIMS // NUMBER)
    ]
    database.close()
    return len(leases)
