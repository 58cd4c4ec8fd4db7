# SPDX-License-Identifier: Apache-2.0
"""Finds the differences between what the database, the cloud and the agents say, and the step that repairs each. Pure.

1. The database is right, except about servers, of which the cloud knows, and about its own sums.
2. Nothing in flight is a difference (`in_flight`): an engine takes its steps, or somebody has just changed it.
3. Servers are their owners': none is deleted because of a difference. Where the engine would delete one, it decides.
4. A difference that only an operator can repair has no step, and says what to do.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gsaas.cloud.base import ListedServer
from gsaas.engine import desired_state
from gsaas.objects.binding import Binding, LocalBinding, binding_of
from gsaas.objects.daemon import Daemon, DaemonState
from gsaas.objects.endpoint_audit import EndpointAudit
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.timings import CREATION
from gsaas.verify.facts import Facts, Stored


@dataclass(frozen=True)
class Recount:
    """Count again what is claimed and kept of a GPU."""

    gpu_uuid: str

    def __str__(self) -> str:
        return "count again, as gsaas-manage db recount does"


@dataclass(frozen=True)
class DeleteClaims:
    """Delete claims that belong to no lease, and count again."""

    lease_id: str

    def __str__(self) -> str:
        return "delete these claims, and count again"


@dataclass(frozen=True)
class FreeShares:
    """Have shares of reservations belong to no lease."""

    lease_id: str

    def __str__(self) -> str:
        return "give the shares back to their reservations"


@dataclass(frozen=True)
class EndUsage:
    """Record that a lease without GPUs has returned them."""

    lease_id: str

    def __str__(self) -> str:
        return "record that its GPUs were returned when it was changed last"


@dataclass(frozen=True)
class FailLease:
    """Make a lease ERROR that has lost cGPUs for good."""

    lease_id: str

    def __str__(self) -> str:
        return "make it ERROR, and leave its server to its owner, as for a GPU host that is gone"


@dataclass(frozen=True)
class Reconcile:
    """Have an engine reconcile a lease."""

    lease_id: str

    def __str__(self) -> str:
        return "have an engine reconcile the lease"


@dataclass(frozen=True)
class OrderBinding:
    """Send an endpoint the binding of a lease anew."""

    host: str
    lease_id: str

    def __str__(self) -> str:
        return f"send the endpoint of {self.host} the binding anew"


@dataclass(frozen=True)
class RemoveBinding:
    """Have an endpoint remove a binding that belongs to no lease."""

    host: str
    port_id: str

    def __str__(self) -> str:
        return f"have the endpoint of {self.host} remove it, and cut its connections"


@dataclass(frozen=True)
class AuditEndpoint:
    """Have an endpoint make its kernel equal to its bindings."""

    host: str

    def __str__(self) -> str:
        return f"have the endpoint of {self.host} repair its kernel now"


@dataclass(frozen=True)
class UpdateGpuHost:
    """Send a GPU host its desired state anew."""

    host: str

    def __str__(self) -> str:
        return f"send the monitor of {self.host} its desired state anew"


@dataclass(frozen=True)
class SetTag:
    """Give a server the tag of its lease."""

    server_id: str
    lease_id: str

    def __str__(self) -> str:
        return "set the tag again"


@dataclass(frozen=True)
class RemoveTag:
    """Take a tag from a server that names a lease which does not exist."""

    server_id: str
    lease_id: str

    def __str__(self) -> str:
        return "take the tag away, and leave the server to its owner: tell the project that it has no cGPUs"


Step = (
    Recount
    | DeleteClaims
    | FreeShares
    | EndUsage
    | FailLease
    | Reconcile
    | OrderBinding
    | RemoveBinding
    | AuditEndpoint
    | UpdateGpuHost
    | SetTag
    | RemoveTag
)


@dataclass(frozen=True)
class Difference:
    """Something that is not as it should be."""

    kind: str
    """One of `KINDS`."""
    subject: str
    """What it is about: `lease 1234…`, `GPU GPU-1234…`, `daemon 1234…-0 of gpu1`."""
    said: str = field(compare=False)
    """What it is, in one sentence. Its numbers may differ at two looks."""
    step: Step | None
    """What repairs it; None: only an operator can."""
    by_hand: str = field(default="", compare=False)
    """Without a step, what the operator has to do."""

    @property
    def todo(self) -> str:
        """What repairs it, in words."""
        return str(self.step) if self.step is not None else self.by_hand


KINDS = {
    "gpu-count": "the row of a GPU counts more or less than leases claim of it and reservations keep",
    "claim-of-nobody": "a claim belongs to no lease, or to one that still waits in the queue",
    "share-of-nobody": "a share of a reservation is said to be a lease's that has no GPUs",
    "cgpus-lost": "an ACTIVE lease has fewer cGPUs than it was given",
    "lease-left-something": "a RELEASED lease still has claims, a binding or a server",
    "usage-open": "a lease that has returned its GPUs still counts as if it had them",
    "server-gone": "the server of an ACTIVE lease does not exist",
    "server-moved": "the server of an ACTIVE lease is on another host than is recorded",
    "server-of-nobody": "a server has the tag of a lease that does not exist",
    "server-outlived": "a server was made for a lease that was over already",
    "tag-lost": "the server of a lease lacks the lease's tag",
    "endpoint-missing": "a lease is bound to a host that has no endpoint",
    "binding-missing": "an endpoint lacks the binding of a lease",
    "binding-of-nobody": "an endpoint has a binding that belongs to no lease",
    "binding-wrong": "a binding leads somewhere else than to the cGPUs of its lease",
    "map-missing": "the kernel of a compute host lacks what a binding needs",
    "map-surplus": "the kernel of a compute host has something that is nobody's",
    "map-wrong": "the kernel of a compute host has another value than a binding wants",
    "daemon-missing": "a GPU host lacks a daemon of a lease",
    "daemon-of-nobody": "a GPU host has a daemon that belongs to no lease",
    "daemon-wrong": "a daemon serves other GPUs, or another port, than its lease has",
    "admission-missing": "a fence lacks an address that should be admitted",
    "admission-of-nobody": "a fence admits an address that belongs to no lease",
}
"""Kind of a difference -> what it is."""


def differences(facts: Facts, settle: float) -> list[Difference]:
    """Return all differences, in the order in which they are to be repaired.

    What was changed in the last *settle* seconds is in flight.
    """
    stored = facts.stored
    moving = {one.id for one in stored.leases.values() if in_flight(one, stored.now, settle)}
    found = [*_rows(stored), *_leases(stored, moving)]
    if facts.servers is not None:
        found += _servers(stored, facts.servers, moving, settle)
    for host, audit in sorted(facts.endpoints.items()):
        found += _endpoint(stored, host, audit, moving)
    for host, report in sorted(facts.monitors.items()):
        found += _monitor(stored, host, report, moving)
    return found


def lasting(first: Iterable[Difference], second: Iterable[Difference]) -> list[Difference]:
    """Return the differences of the *second* look that the *first* one had, too."""
    before = set(first)
    return [one for one in second if one in before]


def in_flight(lease: Lease, now: datetime.datetime, settle: float) -> bool:
    """Return whether an engine takes steps of *lease*, or it was changed in the last *settle* seconds."""
    if lease.status in (Status.CLAIMED, Status.BOOTING, Status.RELEASING):
        return True
    if lease.status == Status.ERROR and (lease.claims or lease.server_id or lease.bound_host):
        return True  # it is being cleaned up
    owned = lease.driven_until is not None and lease.driven_until > now
    return owned or (now - lease.updated_at).total_seconds() < settle


def _rows(stored: Stored) -> Iterator[Difference]:
    for uuid, said in sorted(stored.miscounted.items()):
        yield Difference("gpu-count", f"GPU {uuid}", said, Recount(uuid))
    for lease_id, gpus in sorted(stored.orphaned_claims.items()):
        known = "waits in the queue" if lease_id in stored.leases else "is not stored"
        said = f"it {known}, and claims of it are on {', '.join(sorted(set(gpus)))}"
        yield Difference("claim-of-nobody", _lease(lease_id), said, DeleteClaims(lease_id))
    for lease_id, reservations in sorted(stored.orphaned_shares.items()):
        said = f"it has no GPUs, and shares of reservation {', '.join(sorted(set(reservations)))} are said to be its"
        yield Difference("share-of-nobody", _lease(lease_id), said, FreeShares(lease_id))


def _leases(stored: Stored, moving: set[str]) -> Iterator[Difference]:
    """Yield what the rows of single leases contradict."""
    for lease in _settled(stored, moving):
        name = _lease(lease.id)
        if lease.status == Status.RELEASED:
            left = [
                *([f"{len(lease.claims)} claims"] if lease.claims else []),
                *([f"a binding on {lease.bound_host}"] if lease.bound_host else []),
                *([f"server {lease.server_id}"] if lease.server_id else []),
            ]
            said = f"it is RELEASED, and still has {', '.join(left)}"
            yield Difference("lease-left-something", name, said, Reconcile(lease.id))
        elif lease.status == Status.ACTIVE and len(lease.claims) < lease.count:
            said = f"it has {len(lease.claims)} of its {lease.count} cGPUs"
            yield Difference("cgpus-lost", name, said, FailLease(lease.id))
        elif lease.status == Status.ERROR and lease.claimed_at and not lease.released_at:
            said = "it has no GPUs, and its usage goes on being counted"
            yield Difference("usage-open", name, said, EndUsage(lease.id))
        if (
            lease.status == Status.ACTIVE
            and lease.bound_host
            and lease.bound_host not in stored.endpoints
        ):
            yield Difference(
                "endpoint-missing",
                name,
                f"it is bound to {lease.bound_host}, which has no endpoint",
                None,
                f"start gsaas-rodvr on {lease.bound_host}, or gsaas hosts -forget={lease.bound_host} if it is gone",
            )


def _servers(
    stored: Stored, servers: Mapping[str, ListedServer], moving: set[str], settle: float
) -> Iterator[Difference]:
    for lease in _settled(stored, moving):
        if lease.status != Status.ACTIVE or not lease.has_server:
            continue
        name, server = _lease(lease.id), servers.get(lease.server_id or "")
        if server is None:
            said = f"the cloud has no server {lease.server_id}"
            yield Difference("server-gone", name, said, Reconcile(lease.id))
            continue
        if server.host != lease.server_host:
            said = f"server {server.id} is on {server.host or 'no host'}, and was on {lease.server_host}"
            yield Difference("server-moved", name, said, Reconcile(lease.id))
        if lease.plain_server_id is None and lease.id not in server.lease_ids:
            said = f"server {server.id} has not the tag of its lease"
            yield Difference("tag-lost", name, said, SetTag(server.id, lease.id))
    for server in sorted(servers.values(), key=lambda one: one.id):
        for lease_id in sorted(server.lease_ids):
            if lease_id not in moving:
                yield from _tagged(stored, server, lease_id, settle)


def _tagged(
    stored: Stored, server: ListedServer, lease_id: str, settle: float
) -> Iterator[Difference]:
    """Yield what is wrong with a server that has the tag of a lease."""
    lease = stored.leases.get(lease_id) or stored.named.get(lease_id)
    name = f"server {server.id}"
    where = f"of project {server.project_id} on {server.host or 'no host'}"
    if lease is None:
        said = f"it, {where}, has the tag of lease {lease_id}, which is not stored"
        yield Difference("server-of-nobody", name, said, RemoveTag(server.id, lease_id))
        return
    is_over = lease.status in (Status.ERROR, Status.RELEASED)
    # A lease that recorded its server has left that to its owner since, or the engine deletes it.
    never_had = lease.server_id is None and CREATION not in (lease.timings or {})
    if (
        is_over
        and never_had
        and lease.plain_server_id is None
        and lease.project_id == server.project_id
        and not in_flight(lease, stored.now, settle)
    ):
        said = f"it, {where}, was made for lease {lease_id} when that was {lease.status} already"
        yield Difference("server-outlived", name, said, Reconcile(lease_id))


def _endpoint(
    stored: Stored, host: str, audit: EndpointAudit, moving: set[str]
) -> Iterator[Difference]:
    has = {binding.port_id: binding for binding in audit.bindings}
    bound = [lease for lease in stored.leases.values() if lease.bound_host == host]
    for lease in bound:
        if lease.id in moving or lease.status != Status.ACTIVE or len(lease.claims) < lease.count:
            continue
        order = OrderBinding(host, lease.id)
        try:
            wanted = binding_of(lease)
        except (ValueError, LookupError):
            continue  # its GPU host has not reported its address: nothing can be sent
        present = has.get(wanted.port_id)
        if present is None:
            said = f"the endpoint of {host} has no binding of port {wanted.port_id}"
            yield Difference("binding-missing", _lease(lease.id), said, order)
        elif _comparable(present) != _comparable(wanted):
            said = f"on {host}: {_how_wrong(present, wanted)}"
            yield Difference("binding-wrong", _lease(lease.id), said, order)
    known = {lease.port_id for lease in bound}
    for port_id, binding in sorted(has.items()):
        if port_id not in known and binding.lease_id not in moving:
            said = f"the endpoint has a binding of it for lease {binding.lease_id}, which is not bound there"
            subject = f"port {port_id} on {host}"
            yield Difference("binding-of-nobody", subject, said, RemoveBinding(host, port_id))
    if not any(lease.id in moving for lease in bound):
        for each in audit.kernel:
            said = f"it is {each.how} in the kernel"
            yield Difference(f"map-{each.how}", f"{each.what} on {host}", said, AuditEndpoint(host))


def _comparable(binding: Binding | LocalBinding) -> dict[str, Any]:
    """Return a binding so that two that mean the same are equal: a cloud lists addresses in any order."""
    data = binding.to_dict()
    if isinstance(binding, Binding):
        data["mac"] = binding.mac.lower()
        data["ips"] = sorted({data.pop("ip"), *data.pop("other_ips", ())})
    return data


def _how_wrong(present: Binding | LocalBinding, wanted: Binding | LocalBinding) -> str:
    for masked, real in sorted(wanted.mappings.items()):
        if present.mappings.get(masked) != real:
            leads = present.mappings.get(masked)
            return (
                f"masked address {masked} leads to {leads or 'nothing'}, and should lead to {real}"
            )
    if surplus := sorted(present.mappings.keys() - wanted.mappings.keys()):
        return f"masked address {surplus[0]} leads to {present.mappings[surplus[0]]}, and should lead to nothing"
    return f"the binding of port {wanted.port_id} has other addresses, or another tap, than is recorded"


def _monitor(
    stored: Stored, host: str, report: Mapping[str, Any], moving: set[str]
) -> Iterator[Difference]:
    there = [
        lease
        for lease in stored.leases.values()
        if any(claim.gpu.host_name == host for claim in lease.claims)
    ]
    step = UpdateGpuHost(host)
    all_wanted = desired_state.desired(host, 0, there, stored.addresses)
    settled = [lease for lease in there if lease.id not in moving]
    wanted = desired_state.desired(host, 0, settled, stored.addresses)
    running = {
        key: status
        for key, status in report["daemons"].items()
        if status["lease_id"] is not None and status["state"] != DaemonState.DRAINING
    }
    for daemon in sorted(wanted.daemons, key=lambda one: one.key):
        status, subject = running.get(daemon.key), f"daemon {daemon.key} of {host}"
        if status is None:
            said = f"there is none, and its lease needs it on port {daemon.port}"
            yield Difference("daemon-missing", subject, said, step)
        elif _of_status(status) != _of_daemon(daemon):
            said = "it has not the GPUs, the port or the memory of its lease"
            yield Difference("daemon-wrong", subject, said, step)
    known = {daemon.key for daemon in all_wanted.daemons}
    for key, status in sorted(running.items()):
        if key not in known and status["lease_id"] not in moving:
            said = f"it has port {status['port']}, and belongs to no lease"
            yield Difference("daemon-of-nobody", f"daemon {key} of {host}", said, step)
    if report.get("fence") is None:
        return
    admitted = set(report["fence"]["admissions"])
    for each in sorted({str(one) for one in wanted.admissions} - admitted):
        said = "the consumer of a daemon has this address, and the fence does not admit it"
        yield Difference("admission-missing", f"admission {each} on {host}", said, step)
    changing = _ports_of(lease for lease in there if lease.id in moving)
    for each in sorted(admitted - {str(one) for one in all_wanted.admissions}):
        if each.rpartition(":")[2] not in changing:
            said = "the fence admits it, and no consumer of a daemon has this address"
            yield Difference("admission-of-nobody", f"admission {each} on {host}", said, step)


def _of_daemon(daemon: Daemon) -> tuple[Any, ...]:
    return (*daemon.gpus, daemon.port, daemon.ports, daemon.memory_mb)


def _of_status(status: Mapping[str, Any]) -> tuple[Any, ...]:
    gpus = (status["gpu_uuid"], *status.get("other_gpus", ()))
    return (*gpus, status["port"], status.get("ports", 1), status["memory_mb"])


def _ports_of(leases: Iterable[Lease]) -> set[str]:
    """Return the ports of the daemons that serve these leases, as text."""
    return {
        str((claim.daemon_port or claim.gpu.daemon_port) + offset)
        for lease in leases
        for claim in lease.claims
        for offset in range(lease.ports_per_daemon)
    }


def _settled(stored: Stored, moving: set[str]) -> list[Lease]:
    return [lease for lease in stored.leases.values() if lease.id not in moving]


def _lease(lease_id: str) -> str:
    return f"lease {lease_id}"
