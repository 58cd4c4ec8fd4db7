# SPDX-License-Identifier: Apache-2.0
"""An engine that starts drives the leases whose servers changed while no engine ran, and no others."""

from __future__ import annotations

from dataclasses import replace

from gsaas import rpc
from gsaas.engine.service import Engine
from gsaas.objects.lifecycle import Status
from tests.support.waiting import until
from tests.unit.engine.world import HOST


def test_only_leases_whose_servers_are_not_where_they_were_are_looked_at(world):
    stayed, moved, gone = (world.launch() for _ in range(3))
    for lease_id in (stayed, moved, gone):
        world.drive(lease_id)
    servers = world.cloud.servers
    servers[moved] = replace(servers[moved], host="compute2")
    del servers[gone]
    world.cloud.server_hosts = lambda: {server.id: server.host for server in servers.values()}
    world.cloud.server_changes = lambda _since: []
    asked = []
    find = world.cloud.find
    world.cloud.find = lambda owner: asked.append(owner.lease_id) or find(owner)

    world.conf.set_override("workers", 1, "engine")  # so that leases are driven in order
    bus = rpc.connect(world.conf, rpc.IN_PROCESS)
    engine = Engine(
        world.conf,
        database=world.database,
        bus=bus,
        endpoint=world.endpoint,
        driver=world.engine(),
        claims=world.claims,
    )
    engine.start()
    try:
        until(lambda: world.lease(gone).status == Status.RELEASED)
    finally:
        engine.stop()
        bus.cleanup()
    assert set(asked) == {moved, gone}
    assert world.lease(stayed).bound_host == HOST
