# SPDX-License-Identifier: Apache-2.0
"""All that may happen in a world, and how that ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gsaas.cloud.base import ServerStatus
from gsaas.objects.lifecycle import Status
from tests.world import bus, clients, cloud, database, faults, operations
from tests.world.table import ALL

if TYPE_CHECKING:
    from tests.world.world import World

__all__ = ["ALL", "calm", "end_all", "faults", "operations"]


def calm(world: World) -> None:
    """Stop all faults; processes that were killed start again by themselves."""
    vars(world.bus.weather).update(vars(bus.Weather()))
    vars(world.database.weather).update(vars(database.Weather()))
    vars(world.nova.weather).update(vars(cloud.Weather()))
    for process in world.processes.values():
        process.stands_still_until, process.skew = 0.0, 0.0
        process.fuse = process.dies_after = None
    world.switched_off.clear()
    for kernel in world.kernels.values():
        kernel.refuses = False
    for machine in world.gpu_hosts.values():
        machine.systemd.is_away = machine.systemd.fails_next = machine.systemd.ignores_stop = False
        machine.gpus.fails, machine.gpus.odd = False, None
        machine.gpus.withdrawn, machine.gpus.missing = {}, set()
    for key, made in list(world.nova.servers.items()):
        if (
            made.server.status == ServerStatus.SHELVED
        ):  # its owner deletes it: its lease may have been purged
            world.nova.remove(key)
    world.bus.deliver()


def end_all(world: World) -> None:
    """Have an operator end every lease, cancel every reservation, and enable every GPU and host."""
    for key, made in list(world.nova.servers.items()):
        if made.tag is None:
            world.nova.remove(key)
    for row in world.reader.rows(
        "SELECT id FROM reservations WHERE status IN ('PENDING', 'ACTIVE')"
    ):
        clients.call(world, "admin", "DELETE", f"/v1/reservations/{row['id']}")
    for key, row in world.reader.stored().leases.items():
        if row["status"] not in (Status.RELEASED, Status.RELEASING):
            operations.end(world, "admin", key)
