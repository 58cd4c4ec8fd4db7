# SPDX-License-Identifier: Apache-2.0
"""memcached: what Keystone has computed. It validates a token for every request to any service."""

from __future__ import annotations

from tests.openstack.bed import processes
from tests.openstack.bed.settings import ADDRESS, MEMCACHED_PORT
from tests.openstack.bed.work import Unit

SERVER = f"{ADDRESS}:{MEMCACHED_PORT}"
DAEMON = processes.Daemon(
    name="memcached",
    command=("memcached", "-u", "nobody", "-l", ADDRESS, "-p", str(MEMCACHED_PORT), "-U", "0"),
    ports=(MEMCACHED_PORT,),
    ready=lambda: processes.listens(MEMCACHED_PORT),
)


def units() -> list[Unit]:
    return [Unit("cache", daemons=(DAEMON,))]
