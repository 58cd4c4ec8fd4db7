# SPDX-License-Identifier: Apache-2.0
"""Allocation: what a lease gets with its placement: claims, and how its consumer reaches them.

Reads and writes in the caller's transaction.
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


class Allocation(NamedTuple):
    """What a lease is to get."""

    lease: Lease
    """With its claims."""
    events: Sequence[LeaseEvent]
    """That are to be recorded."""
    before: Mapping[str, Gpu]
    """The GPUs that it claims, by UUID, as they are before."""
    after: Mapping[str, Gpu]
    """The same GPUs as they are then."""


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

    def plan(
        self,
        connection: Connection,
        lease: Lease,
        request: Request,
        placement: Placement,
        policy: Policy,
        watch: timeutils.StopWatch,
        beside: Sequence[Lease] = (),
    ) -> Allocation:
        """Return what *lease* gets with *placement*; writes nothing.

        *watch* was started when the claim began. *beside* are the leases of the same transaction that are planned, and
        not written yet. Raises the errors of `UNREACHABLE`.
        """
        pool = self._cache.pool
        after = pool.claimed(
            placement,
            exclusive=request.exclusive,
            newest=self._cache.newest_generation,
            reserved=lease.reservation_id is not None,
        )
        allocated, events = self._allocated(connection, lease, placement, policy, after, beside)
        took = {**(lease.timings or {}), timings.CLAIM: watch.elapsed()}
        before = {uuid: pool[uuid] for uuid in after}
        return Allocation(allocated.with_(timings=took), events, before, after)

    def write(self, connection: Connection, planned: Allocation) -> Lease:
        """Write what was planned; return the lease as it is stored.

        Raises `OvertakenError` if a GPU is not as the plan has it.
        """
        lease = planned.lease
        if lease.queued_at is None:
            leases.insert(connection, lease)
        else:
            lease = leases.write(connection, lease)
        for uuid, gpu in planned.after.items():  # after the lease, which the row of a GPU refers to
            if not claim_rows.swap(connection, planned.before[uuid], gpu, lease.id):
                self._cache.pool.begin_elsewhere([uuid])
                raise OvertakenError(uuid)
        leases.insert_claims(connection, lease)
        leases.record_events(connection, lease.id, planned.events)
        return lease

    def write_group(self, connection: Connection, group: Sequence[Allocation]) -> None:
        """Write allocations of new leases, each planned with the GPUs as those before it leave them.

        The GPUs are locked, and as they were planned.
        """
        new = [one.lease for one in group]
        leases.insert_all(connection, new)
        taken: dict[str, tuple[Gpu, list[str]]] = {}
        for one in group:
            for uuid, gpu in one.after.items():
                lease_ids = taken[uuid][1] if uuid in taken else []
                taken[uuid] = gpu, [*lease_ids, one.lease.id]
        claim_rows.take(connection, list(taken.values()))
        leases.insert_claims(connection, *new)
        leases.record_events_of(connection, {one.lease.id: one.events for one in group})

    def _allocated(
        self,
        connection: Connection,
        lease: Lease,
        placement: Placement,
        policy: Policy,
        gpus: Mapping[str, Gpu],
        beside: Sequence[Lease],
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
            gpu_hosts = {gpu.host for gpu in gpus.values()}
            access, addresses = self._reach(connection, lease, gpu_hosts, beside)
        daemons: Sequence[Mapping[str, Any]] = [{}] * len(placement.shares)
        if ports := self._daemon_ports.get(access.get("remoting", lease.remoting)):
            hosts = [gpus[share.gpu_uuid].host for share in placement.shares]
            daemons = _daemon_ports(connection, lease.id, hosts, ports, beside)
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
        self,
        connection: Connection,
        lease: Lease,
        gpu_hosts: set[str],
        beside: Sequence[Lease],
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
        self._check_local_share(connection, lease, host, beside)
        taken = claim_rows.masked_ips(connection, host)
        taken += [
            claim.masked_ip
            for claim in _claims(beside)
            if claim.masked_ip is not None and claim.masked_host == host
        ]
        addresses = local.choose(taken, lease.count, host)
        # The endpoint is going to be told, so from now on there is a binding to remove.
        fields = {"access": access, "bound_host": host, "port_id": lease.id}
        return fields, [
            {"masked_ip": address.ip, "masked_port": address.port, "masked_host": host}
            for address in addresses
        ]

    def _check_local_share(
        self, connection: Connection, lease: Lease, host: str, beside: Sequence[Lease]
    ) -> None:
        """Raise `LocalShareExceeded` if the project of *lease* would have too many addresses of *host* with it."""
        most = self._local_per_project
        if most < 0:
            return
        used = claim_rows.masked_ips_of(connection, host, lease.project_id)
        own = [other for other in beside if other.project_id == lease.project_id]
        used += sum(claim.masked_host == host for claim in _claims(own))
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


def _claims(planned: Sequence[Lease]) -> list[Claim]:
    return [claim for lease in planned for claim in lease.claims]


def _daemon_ports(
    connection: Connection,
    lease_id: str,
    hosts: Sequence[str],
    ports: PortRange,
    beside: Sequence[Lease],
) -> list[dict[str, Any]]:
    """Return, for each cGPU, the fields of its claim that give it a daemon of its own on the host of its GPU."""
    given: list[dict[str, Any]] = [{}] * len(hosts)
    for host in sorted(set(hosts)):
        positions = [position for position, name in enumerate(hosts) if name == host]
        taken = claim_rows.daemon_ports(connection, host)
        taken += [
            claim.daemon_port
            for claim in _claims(beside)
            if claim.daemon_port is not None and claim.daemon_host == host
        ]
        names = [f"{lease_id}-{position}" for position in positions]
        try:
            chosen = ports.choose(taken, names)
        except NoFreePort:
            LOG.warning("%s has no free port in [daemons]lease_ports (%s) for a lease", host, ports)
            raise exceptions.NoDaemonPort(host=host, ports=str(ports)) from None
        for position, port in zip(positions, chosen, strict=True):
            given[position] = {"daemon_host": host, "daemon_port": port}
    return given
