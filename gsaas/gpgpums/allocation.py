# SPDX-License-Identifier: Apache-2.0
"""Allocation: what a lease gets with its placement: claims, and how its consumer reaches its GPUs.

Pure, but that masked addresses on a host are chosen at random.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gsaas import exceptions
from gsaas.gpgpums import lease_end
from gsaas.limits.base import UNLIMITED
from gsaas.objects.access import Access, Consumer, choose
from gsaas.objects.daemon import key_of_lease
from gsaas.objects.device_kinds import CUDA
from gsaas.objects.gpu import Gpu
from gsaas.objects.lease import Claim, Lease
from gsaas.objects.lifecycle import Event, LeaseEvent, Status
from gsaas.objects.placement import Placement, Share
from gsaas.objects.ports import NoFreePort
from gsaas.objects.prices import models_text

if TYPE_CHECKING:
    from gsaas.gpgpums.view import View

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


def allocate(
    lease: Lease,
    placement: Placement,
    policy: str,
    gpus: Mapping[str, Gpu],
    view: View,
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
            for address in view.rules.masked.first(lease.count, lease.remoting)
        ]
    else:
        access, addresses = _reach(lease, {gpu.host for gpu in gpus.values()}, view)
    hosts = [gpus[share.gpu_uuid].host for share in placement.shares]
    remoting = access.get("remoting", lease.remoting)
    daemons = daemons_of(lease, remoting, range(lease.count), hosts, view)
    claims = tuple(
        Claim(lease.id, position, share.gpu_uuid, share.memory_mb, **{**address, **daemon})
        for position, (share, address, daemon) in enumerate(
            zip(placement.shares, addresses, daemons, strict=True)
        )
    )
    chosen = _chosen(lease, placement, policy, gpus, view.now)
    allocated = lease.with_(status=Status.CLAIMED, claims=claims, **chosen, **access)
    happened = [LeaseEvent(Event.CLAIM, Status.CLAIMED, _detail(placement.shares))]
    if allocated.is_ready:
        allocated = allocated.with_(status=Status.ACTIVE)
        happened.append(LeaseEvent(Event.ACTIVATE, Status.ACTIVE))
    return allocated, happened


def _reach(
    lease: Lease, gpu_hosts: set[str], view: View
) -> tuple[dict[str, Any], Sequence[dict[str, Any]]]:
    """Choose how the consumer of a lease without a server reaches its GPUs.

    Returns fields of the lease, and fields of each of its claims.
    """
    rules, local = view.rules.access, view.rules.local
    host, nothing = lease.consumer_host, [dict[str, Any]()] * lease.count
    has_endpoint = local is not None and host in view.pool.compute_hosts
    native = rules.native and lease.kind == CUDA
    access = choose(Consumer(host, has_endpoint), gpu_hosts, native=native)
    if access == Access.NATIVE:
        return {"access": access, "remoting": NATIVE}, nothing
    if access != Access.MASKED or host is None or local is None:
        if not rules.direct:
            raise exceptions.DirectDisabled
        return {"access": access}, nothing
    if rules.local_per_project != UNLIMITED:
        used = view.masked_of_project(host, lease.project_id)
        if used + lease.count > rules.local_per_project:
            raise exceptions.LocalShareExceeded(
                count=lease.count, used=used, limit=rules.local_per_project
            )
    # The endpoint is going to be told, so from now on there is a binding to remove.
    return {"access": access, "bound_host": host, "port_id": lease.id}, [
        {"masked_ip": address.ip, "masked_port": address.port, "masked_host": host}
        for address in local.choose(view.masked_on(host), lease.count, host, lease.remoting)
    ]


def daemons_of(
    lease: Lease, remoting: str, cgpus: Sequence[int], hosts: Sequence[str], view: View
) -> list[dict[str, Any]]:
    """Return the fields of the claims of these *cgpus* that give them daemons on the *hosts* of their GPUs.

    *remoting* is the remoting driver.

    Each has one of its own, unless one daemon serves all cGPUs of the lease, which are on one host then. They are empty
    if the daemons of the GPUs serve the cGPUs. Raises `NoDaemonPort`.
    """
    ports = view.rules.access.daemon_ports.get(remoting)
    given: list[dict[str, Any]] = [{}] * len(hosts)
    if not ports:
        return given
    for host in sorted(set(hosts)):
        positions = [position for position, name in enumerate(hosts) if name == host]
        served = positions[:1] if lease.one_daemon else positions
        names = [key_of_lease(lease.id, cgpus[position]) for position in served]
        try:
            chosen = ports.choose(view.daemon_ports_on(host), names)
        except NoFreePort:
            LOG.warning("%s has no free port in [daemons]lease_ports (%s) for a lease", host, ports)
            raise exceptions.NoDaemonPort(host=host, ports=str(ports)) from None
        if lease.one_daemon:
            chosen *= len(positions)
        for number, (position, port) in enumerate(zip(positions, chosen, strict=True)):
            device = number if lease.one_daemon else 0
            given[position] = {
                "daemon_host": host,
                "daemon_port": port,
                "daemon_device": device,
            }
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
        "ends_at": lease_end.at_claim(lease, now),
        "claimed_mb": sum(share.memory_mb for share in placement.shares),
        **usage_of((gpus[share.gpu_uuid], share.memory_mb) for share in placement.shares),
    }


def usage_of(parts: Iterable[tuple[Gpu, int]]) -> dict[str, Any]:
    """Return the fields of a lease that say which GPUs it uses; *parts* are these, and the MiB that it has of each."""
    found = list(parts)
    return {
        "claimed_gpus": sum(memory_mb / gpu.memory_mb for gpu, memory_mb in found),
        "claimed_models": models_text(found),
    }


def _detail(shares: Sequence[Share]) -> str:
    return ", ".join(f"{share.memory_mb} MiB of {share.gpu_uuid}" for share in shares)
