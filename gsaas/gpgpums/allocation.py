# SPDX-License-Identifier: Apache-2.0
"""Allocation: what a lease gets with its placement: claims, and how its consumer reaches them.

Writes in the caller's transaction.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from oslo_utils import timeutils
from sqlalchemy import Connection

from gsaas import exceptions
from gsaas.db import claims as claim_rows
from gsaas.db import clock, leases
from gsaas.db.database import OvertakenError
from gsaas.db.leases import LeaseEvent
from gsaas.db.models import change_number
from gsaas.gpgpums.addresses import MaskedAddresses
from gsaas.gpgpums.policies.base import Policy
from gsaas.gpgpums.pool_cache import PoolCache
from gsaas.objects import timings
from gsaas.objects.access import Access, Consumer, choose
from gsaas.objects.gpu import Gpu
from gsaas.objects.lease import Claim, Lease
from gsaas.objects.lifecycle import Event, Status
from gsaas.objects.placement import Placement, Share
from gsaas.objects.ports import NoFreePort, PortRange
from gsaas.objects.request import Request

LOG = logging.getLogger(__name__)

NATIVE = "native"
"""The remoting driver of leases whose access is native."""

UNREACHABLE = (
    exceptions.NoDaemonPort,
    exceptions.NoMaskedAddress,
    exceptions.LocalShareExceeded,
    exceptions.DirectDisabled,
)
"""There are GPUs, but no port or address by which their consumer could reach them, or none that it may have."""


class Allocated(NamedTuple):
    """What the allocation of a lease has written."""

    lease: Lease
    """With its claims."""
    gpus: list[Gpu]
    """All GPUs that have changed, as they are then."""
    change_number: int
    """The number of these changes."""


class Allocator:
    """Claims for leases what a policy chose from the pool of *cache*.

    *masked* are the addresses that a VM sees. *daemon_ports* are, by remoting driver, the ports for daemons that serve
    one cGPU each. With *native*, consumers on a GPU host use its GPUs without a middleware; *local* are the masked
    addresses for programs of a compute host, None if these are told the real addresses; *local_per_project* is how many
    of these on one host one project may have, -1 any number. *direct* is whether consumers may be told real addresses.
    """

    def __init__(
        self,
        cache: PoolCache,
        masked: MaskedAddresses,
        daemon_ports: Mapping[str, PortRange],
        *,
        native: bool,
        local: MaskedAddresses | None,
        local_per_project: int = -1,
        direct: bool = True,
    ) -> None:
        self._cache = cache
        self._masked = masked
        self._daemon_ports = daemon_ports
        self._native = native
        self._local = local
        self._local_per_project = local_per_project
        self._direct = direct

    def check_masked(self, count: int) -> None:
        """Raise `BadRequest` if a VM cannot be told *count* masked addresses."""
        self._masked.first(count)

    def allocate(
        self,
        connection: Connection,
        lease: Lease,
        request: Request,
        placement: Placement,
        policy: Policy,
        watch: timeutils.StopWatch,
    ) -> Allocated:
        """Write that *lease* has *placement*; return what was written.

        *watch* was started when the claim began. Raises `OvertakenError` if a GPU is not as the cache has it, and the
        errors of `UNREACHABLE`.
        """
        pool = self._cache.pool
        after = pool.claimed(
            placement,
            exclusive=request.exclusive,
            newest=self._cache.newest_generation,
            reserved=lease.reservation_id is not None,
        )
        before = {uuid: pool[uuid] for uuid in after}
        allocated, happened = self._allocated(connection, lease, placement, policy, after)
        took = {**(lease.timings or {}), timings.CLAIM: watch.elapsed()}
        allocated = allocated.with_(timings=took)
        if lease.queued_at is None:
            leases.insert(connection, allocated)
        else:
            allocated = leases.write(connection, allocated)
        for uuid, gpu in after.items():  # after the lease, which the row of a GPU refers to
            if not claim_rows.swap(connection, before[uuid], gpu, lease.id):
                raise OvertakenError(uuid)
        leases.insert_claims(connection, allocated)
        leases.record_events(connection, lease.id, happened)
        return Allocated(allocated, list(after.values()), change_number(connection))

    def _allocated(
        self,
        connection: Connection,
        lease: Lease,
        placement: Placement,
        policy: Policy,
        gpus: Mapping[str, Gpu],
    ) -> tuple[Lease, list[LeaseEvent]]:
        """Return *lease* with its claims on *gpus*, which are by UUID, and the events to record."""
        changes = _chosen(lease, placement, policy, gpus, clock.now(connection))
        access: dict[str, Any]
        if lease.has_server:
            access = {"access": Access.MASKED}
            addresses: list[dict[str, Any]] = [
                {"masked_ip": address.ip, "masked_port": address.port}
                for address in self._masked.first(lease.count)
            ]
        else:
            access, addresses = self._reach(connection, lease, {gpu.host for gpu in gpus.values()})
        daemons: Sequence[Mapping[str, Any]] = [{}] * len(placement.shares)
        if ports := self._daemon_ports.get(access.get("remoting", lease.remoting)):
            hosts = [gpus[share.gpu_uuid].host for share in placement.shares]
            daemons = _daemon_ports(connection, lease.id, hosts, ports)
        claims = tuple(
            Claim(lease.id, position, share.gpu_uuid, share.memory_mb, **{**address, **daemon})
            for position, (share, address, daemon) in enumerate(
                zip(placement.shares, addresses, daemons, strict=True)
            )
        )
        allocated = lease.with_(status=Status.CLAIMED, claims=claims, **changes, **access)
        happened = [LeaseEvent(Event.CLAIM, Status.CLAIMED, _detail(placement.shares))]
        if allocated.is_ready:
            allocated = allocated.with_(status=Status.ACTIVE)
            happened.append(LeaseEvent(Event.ACTIVATE, Status.ACTIVE))
        return allocated, happened

    def _reach(
        self, connection: Connection, lease: Lease, gpu_hosts: set[str]
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Choose how the consumer of a lease without a server reaches its GPUs.

        Returns fields of the lease, and fields of each of its claims.
        """
        host, local = lease.consumer_host, self._local
        has_endpoint = local is not None and host in self._cache.pool.compute_hosts
        access = choose(Consumer(host, has_endpoint), gpu_hosts, native=self._native)
        if access == Access.NATIVE:
            return {"access": access, "remoting": NATIVE}, [{}] * lease.count
        if access != Access.MASKED or local is None or host is None:
            if not self._direct:
                raise exceptions.DirectDisabled
            return {"access": access}, [{}] * lease.count
        self._check_local_share(connection, lease, host)
        taken = claim_rows.masked_ips(connection, host)
        addresses = local.choose(taken, lease.count, host)
        # The endpoint is going to be told, so from now on there is a binding to remove.
        fields = {"access": access, "bound_host": host, "port_id": lease.id}
        return fields, [
            {"masked_ip": address.ip, "masked_port": address.port, "masked_host": host}
            for address in addresses
        ]

    def _check_local_share(self, connection: Connection, lease: Lease, host: str) -> None:
        """Raise `LocalShareExceeded` if the project of *lease* would have too many addresses of *host* with it."""
        most = self._local_per_project
        if most < 0:
            return
        used = claim_rows.masked_ips_of(connection, host, lease.project_id)
        if used + lease.count > most:
            raise exceptions.LocalShareExceeded(count=lease.count, used=used, limit=most)


def _chosen(
    lease: Lease,
    placement: Placement,
    policy: Policy,
    gpus: Mapping[str, Gpu],
    now: datetime.datetime,
) -> dict[str, Any]:
    """Return the fields of *lease* that follow from its placement; *gpus* are those of its shares, by UUID."""
    kept_until = lease.kept_until
    if lease.keepalive is not None:
        kept_until = now + datetime.timedelta(seconds=lease.keepalive)
    return {
        "policy": policy.name,
        "wanted_host": placement.host,
        "avoided_hosts": list(placement.avoid),
        "claimed_at": now,
        "kept_until": kept_until,
        "claimed_mb": sum(share.memory_mb for share in placement.shares),
        "claimed_gpus": sum(
            share.memory_mb / gpus[share.gpu_uuid].memory_mb for share in placement.shares
        ),
    }


def _detail(shares: Sequence[Share]) -> str:
    return ", ".join(f"{share.memory_mb} MiB of {share.gpu_uuid}" for share in shares)


def _daemon_ports(
    connection: Connection, lease_id: str, hosts: Sequence[str], ports: PortRange
) -> list[dict[str, Any]]:
    """Return, for each cGPU, the fields of its claim that give it a daemon of its own on the host of its GPU."""
    given: list[dict[str, Any]] = [{}] * len(hosts)
    for host in sorted(set(hosts)):
        positions = [position for position, name in enumerate(hosts) if name == host]
        taken = claim_rows.daemon_ports(connection, host)
        names = [f"{lease_id}-{position}" for position in positions]
        try:
            chosen = ports.choose(taken, names)
        except NoFreePort:
            LOG.warning("%s has no free port in [daemons]lease_ports (%s) for a lease", host, ports)
            raise exceptions.NoDaemonPort(host=host, ports=str(ports)) from None
        for position, port in zip(positions, chosen, strict=True):
            given[position] = {"daemon_host": host, "daemon_port": port}
    return given
