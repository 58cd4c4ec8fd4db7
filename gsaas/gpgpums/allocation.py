# SPDX-License-Identifier: Apache-2.0
"""Allocation: what a lease gets with its placement: claims, and how its consumer reaches its GPUs. Pure."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gsaas import exceptions
from gsaas.limits.base import UNLIMITED
from gsaas.objects.access import Access, Consumer, choose
from gsaas.objects.address import Address
from gsaas.objects.gpu import Gpu
from gsaas.objects.lease import Claim, Lease
from gsaas.objects.lifecycle import Event, LeaseEvent, Status
from gsaas.objects.placement import Placement, Share
from gsaas.objects.ports import NoFreePort, PortRange

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


@dataclass(frozen=True)
class AccessRules:
    """How consumers may reach their GPUs."""

    daemon_ports: Mapping[str, PortRange] = field(default_factory=dict)
    """By remoting driver, the ports for daemons that serve one cGPU each; without any, GPUs' own daemons serve them."""
    native: bool = False
    """Consumers on a GPU host use its GPUs without a middleware."""
    local_per_project: int = UNLIMITED
    """How many masked addresses one project may have on one host."""
    direct: bool = True
    """Consumers may be told real addresses."""


class TakenPlaces(Protocol):
    """Which ports and addresses are taken, by what is stored and by what was planned before in the same transaction."""

    @property
    def now(self) -> datetime.datetime:
        """Return the time (UTC)."""

    @property
    def compute_hosts(self) -> Collection[str]:
        """Return the hosts with an endpoint."""

    def daemon_ports_on(self, host: str) -> Collection[int]:
        """Return the TCP ports of all daemons on *host*."""

    def masked_of_project(self, host: str, project_id: str) -> int:
        """Return how many masked addresses a project has on *host*."""

    @property
    def has_local_addresses(self) -> bool:
        """Return whether programs of a host with an endpoint get masked addresses; else they get the real ones."""

    def masked_for_vm(self, count: int) -> Sequence[Address]:
        """Return the masked addresses of a VM; raises `BadRequest` if there are fewer."""

    def masked_on(self, host: str, count: int) -> Sequence[Address]:
        """Return masked addresses that are free on *host*; raises `NoMaskedAddress` if there are fewer."""


def allocate(
    lease: Lease,
    placement: Placement,
    policy: str,
    gpus: Mapping[str, Gpu],
    taken: TakenPlaces,
    rules: AccessRules,
) -> tuple[Lease, list[LeaseEvent]]:
    """Return *lease* with claims on *gpus*, those of its placement by UUID, and the events to record.

    Raises the errors of `UNREACHABLE`, and `BadRequest` if there are too few masked addresses for a VM.
    """
    access: dict[str, Any]
    addresses: Sequence[dict[str, Any]]
    if lease.has_server:
        access = {"access": Access.MASKED}
        addresses = [
            {"masked_ip": address.ip, "masked_port": address.port}
            for address in taken.masked_for_vm(lease.count)
        ]
    else:
        access, addresses = _reach(lease, {gpu.host for gpu in gpus.values()}, taken, rules)
    daemons: Sequence[Mapping[str, Any]] = [{}] * len(placement.shares)
    if ports := rules.daemon_ports.get(access.get("remoting", lease.remoting)):
        hosts = [gpus[share.gpu_uuid].host for share in placement.shares]
        daemons = _daemon_ports(lease.id, hosts, ports, taken)
    claims = tuple(
        Claim(lease.id, position, share.gpu_uuid, share.memory_mb, **{**address, **daemon})
        for position, (share, address, daemon) in enumerate(
            zip(placement.shares, addresses, daemons, strict=True)
        )
    )
    chosen = _chosen(lease, placement, policy, gpus, taken.now)
    allocated = lease.with_(status=Status.CLAIMED, claims=claims, **chosen, **access)
    happened = [LeaseEvent(Event.CLAIM, Status.CLAIMED, _detail(placement.shares))]
    if allocated.is_ready:
        allocated = allocated.with_(status=Status.ACTIVE)
        happened.append(LeaseEvent(Event.ACTIVATE, Status.ACTIVE))
    return allocated, happened


def _reach(
    lease: Lease, gpu_hosts: set[str], taken: TakenPlaces, rules: AccessRules
) -> tuple[dict[str, Any], Sequence[dict[str, Any]]]:
    """Choose how the consumer of a lease without a server reaches its GPUs.

    Returns fields of the lease, and fields of each of its claims.
    """
    host, nothing = lease.consumer_host, [dict[str, Any]()] * lease.count
    has_endpoint = taken.has_local_addresses and host in taken.compute_hosts
    access = choose(Consumer(host, has_endpoint), gpu_hosts, native=rules.native)
    if access == Access.NATIVE:
        return {"access": access, "remoting": NATIVE}, nothing
    if access != Access.MASKED or host is None:
        if not rules.direct:
            raise exceptions.DirectDisabled
        return {"access": access}, nothing
    if rules.local_per_project != UNLIMITED:
        used = taken.masked_of_project(host, lease.project_id)
        if used + lease.count > rules.local_per_project:
            raise exceptions.LocalShareExceeded(
                count=lease.count, used=used, limit=rules.local_per_project
            )
    # The endpoint is going to be told, so from now on there is a binding to remove.
    return {"access": access, "bound_host": host, "port_id": lease.id}, [
        {"masked_ip": address.ip, "masked_port": address.port, "masked_host": host}
        for address in taken.masked_on(host, lease.count)
    ]


def _daemon_ports(
    lease_id: str, hosts: Sequence[str], ports: PortRange, taken: TakenPlaces
) -> list[dict[str, Any]]:
    """Return, for each cGPU, the fields of its claim that give it a daemon of its own on the host of its GPU."""
    given: list[dict[str, Any]] = [{}] * len(hosts)
    for host in sorted(set(hosts)):
        positions = [position for position, name in enumerate(hosts) if name == host]
        names = [f"{lease_id}-{position}" for position in positions]
        try:
            chosen = ports.choose(taken.daemon_ports_on(host), names)
        except NoFreePort:
            LOG.warning("%s has no free port in [daemons]lease_ports (%s) for a lease", host, ports)
            raise exceptions.NoDaemonPort(host=host, ports=str(ports)) from None
        for position, port in zip(positions, chosen, strict=True):
            given[position] = {"daemon_host": host, "daemon_port": port}
    return given


def _chosen(
    lease: Lease,
    placement: Placement,
    policy: str,
    gpus: Mapping[str, Gpu],
    now: datetime.datetime,
) -> dict[str, Any]:
    """Return the fields of *lease* that follow from its placement; *gpus* are those of its shares, by UUID."""
    kept_until = lease.kept_until
    if lease.keepalive is not None:
        kept_until = now + datetime.timedelta(seconds=lease.keepalive)
    return {
        "policy": policy,
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
