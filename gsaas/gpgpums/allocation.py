"""What a lease is given with its GPUs: claims, and how they are reached. Writes in the caller's transaction."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Mapping, Sequence, Set

from oslo_utils import timeutils
from sqlalchemy import Connection, select

from gsaas import exceptions
from gsaas.db import claims as rows
from gsaas.db import leases, models
from gsaas.db.database import OvertakenError
from gsaas.db.leases import Happened
from gsaas.db.plain import Claim, Lease
from gsaas.gpgpums.addresses import MaskedAddresses
from gsaas.gpgpums.policies.base import Policy
from gsaas.gpgpums.pool_cache import Inventory
from gsaas.objects import timings
from gsaas.objects.access import Access, Consumer, choose
from gsaas.objects.address import Address
from gsaas.objects.gpu import Gpu
from gsaas.objects.lifecycle import Event, Status
from gsaas.objects.placement import Placement
from gsaas.objects.ports import NoFreePort, PortRange
from gsaas.objects.request import Request

LOG = logging.getLogger(__name__)

NATIVE = "native"
"""The remoting driver of leases whose access is native."""

UNREACHABLE = (exceptions.NoDaemonPort, exceptions.NoMaskedAddress)
"""There are GPUs, and nothing by which they could be reached."""


class Allocator:
    """Takes for leases what the policy chose from *inventory*.

    *masked* are the addresses that a VM sees; the rest is as for `gsaas.gpgpums.claims.Claims`.
    """

    def __init__(
        self,
        inventory: Inventory,
        masked: MaskedAddresses,
        daemon_ports: Mapping[str, PortRange],
        *,
        native: bool,
        local: MaskedAddresses | None,
    ) -> None:
        self._inventory = inventory
        self._masked = masked
        self._daemon_ports = daemon_ports
        self._native = native
        self._local = local

    def take(
        self,
        connection: Connection,
        lease: Lease,
        request: Request,
        placement: Placement,
        policy: Policy,
        watch: timeutils.StopWatch,
    ) -> list[Gpu]:
        """Write that *lease* has *placement* and how it gets there; return the GPUs as they then are.

        *watch* runs since the claim began. Raises `OvertakenError` if a GPU is not as the inventory has it, and
        what is `UNREACHABLE`.
        """
        newest = self._inventory.newest
        # One after the other in the order of the cGPUs, so that it shows which was given last.
        turns = {share.gpu_uuid: turn for turn, share in enumerate(placement.shares, start=1)}
        before, after = {}, {}
        for uuid, size in placement.memory_by_gpu().items():
            before[uuid] = gpu = self._inventory.pool.get(uuid)
            generation = newest + turns[uuid]
            after[uuid] = gpu.claim(size, exclusive=request.exclusive, generation=generation)
        _fill(lease, placement, policy, after)
        hosts = {uuid: gpu.host for uuid, gpu in after.items()}
        if lease.has_server:
            lease.access = Access.MASKED
            _mask(lease, self._masked.first(lease.count))
        else:
            self._reach(connection, lease, set(hosts.values()))
        if ports := self._daemon_ports.get(lease.remoting):
            _give_ports(connection, lease, hosts, ports)
        happened = _begin(lease)
        lease.timings = {**(lease.timings or {}), timings.CLAIM: watch.elapsed()}
        if lease.queued_at is None:
            leases.insert(connection, lease)
        else:
            leases.serve(connection, lease)
        for uuid, gpu in after.items():  # only now is there a lease that a GPU can name
            if not rows.swap(connection, before[uuid], gpu, lease.id):
                raise OvertakenError
        leases.insert_claims(connection, lease)
        leases.tell(connection, lease, happened)
        return list(after.values())

    def _reach(self, connection: Connection, lease: Lease, gpu_hosts: Set[str]) -> None:
        """Choose how the consumer of a lease that stands alone reaches its GPUs."""
        host = lease.consumer_host
        has_endpoint = self._local is not None and host in self._inventory.pool.compute_hosts
        lease.access = choose(Consumer(host, has_endpoint), gpu_hosts, native=self._native)
        if lease.access == Access.NATIVE:
            lease.remoting = NATIVE
        if lease.access == Access.MASKED:
            taken = connection.scalars(
                select(models.ClaimRow.masked_ip).where(models.ClaimRow.masked_host == host)
            )
            _mask(lease, self._local.any_of(list(taken), lease.count, host))
            for claim in lease.claims:
                claim.masked_host = host
            # The endpoint is to be told, so from now on there is something to remove.
            lease.bound_host, lease.port_id = host, lease.id


def _fill(lease: Lease, placement: Placement, policy: Policy, gpus: Mapping[str, Gpu]) -> None:
    """Note in *lease* what was chosen for it; *gpus* are those of its shares, by UUID."""
    lease.policy = policy.name
    lease.wanted_host = placement.host
    lease.avoided_hosts = list(placement.avoid)
    lease.claimed_at = now = timeutils.utcnow()
    if lease.keepalive is not None:
        lease.kept_until = now + datetime.timedelta(seconds=lease.keepalive)
    lease.claimed_mb = sum(share.memory_mb for share in placement.shares)
    lease.claimed_gpus = sum(
        share.memory_mb / gpus[share.gpu_uuid].memory_mb for share in placement.shares
    )
    lease.claims = [
        Claim(position=position, gpu_uuid=share.gpu_uuid, memory_mb=share.memory_mb)
        for position, share in enumerate(placement.shares)
    ]


def _mask(lease: Lease, addresses: Sequence[Address]) -> None:
    for claim, address in zip(lease.claims, addresses, strict=True):
        claim.masked_ip, claim.masked_port = address.ip, address.port


def _begin(lease: Lease) -> list[Happened]:
    """Say how far *lease* is with its claims; return what that adds to its story."""
    detail = ", ".join(f"{claim.memory_mb} MiB of {claim.gpu_uuid}" for claim in lease.claims)
    lease.status = Status.CLAIMED
    happened = [Happened(Event.CLAIM, Status.CLAIMED, detail)]
    if leases.is_ready(lease):
        lease.status = Status.ACTIVE
        happened.append(Happened(Event.ACTIVATE, Status.ACTIVE))
    return happened


def _give_ports(
    connection: Connection, lease: Lease, hosts: Mapping[str, str], ports: PortRange
) -> None:
    """Give every cGPU a port of its own on the host of its GPU; *hosts* names it by GPU."""
    for host in sorted(set(hosts.values())):
        claims = [claim for claim in lease.claims if hosts[claim.gpu_uuid] == host]
        taken = connection.scalars(
            select(models.ClaimRow.daemon_port)
            .where(models.ClaimRow.daemon_host == host)
            .union(select(models.GpuRow.daemon_port).where(models.GpuRow.host_name == host))
        )
        names = [f"{lease.id}-{claim.position}" for claim in claims]
        try:
            chosen = ports.choose(list(taken), names)
        except NoFreePort:
            LOG.warning("%s has no free port in [daemons]lease_ports (%s) for a lease", host, ports)
            raise exceptions.NoDaemonPort(host=host, ports=str(ports)) from None
        for claim, port in zip(claims, chosen, strict=True):
            claim.daemon_host, claim.daemon_port = host, port
