# SPDX-License-Identifier: Apache-2.0
"""Finds the differences between what the database, the cloud and the agents say, and the step that repairs each. Pure.

1. The database is right, except about servers, of which the cloud knows, and about its own sums.
2. Nothing in flight is a difference (`in_flight`): an engine takes its steps, or somebody has just changed it.
3. Servers are their owners': none is deleted because of a difference. Where the engine would delete one, it decides.
4. A difference that only an operator can repair has no step, and says what to do.
"""

from __future__ import annotations

import datetime
import enum
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


class Act(enum.StrEnum):
    """What repairs a difference; the value says it to operators."""

    RECOUNT = "count again, as gsaas-manage db recount does"
    DELETE_CLAIMS = "delete these claims, and count again"
    FREE_SHARES = "give the shares back to their reservations"
    END_USAGE = "record that its GPUs were returned when it was changed last"
    FAIL_LEASE = "make it ERROR, and leave its server to its owner, as for a GPU host that is gone"
    RECONCILE = "have an engine reconcile the lease"
    ORDER_BINDING = "send the endpoint the binding anew"
    REMOVE_BINDING = "have the endpoint remove it, and cut its connections"
    AUDIT_ENDPOINT = "have the endpoint repair its kernel now"
    UPDATE_GPU_HOST = "send the monitor its desired state anew"
    SET_TAG = "set the tag again"
    REMOVE_TAG = "take the tag away, and leave the server to its owner: tell the project that it has no cGPUs"


@dataclass(frozen=True)
class Step:
    """One thing to do. Several differences may have the same."""

    act: Act
    what: str
    """The GPU, the lease, the port or the host that it is done to."""
    where: str = ""
    """The host whose endpoint does it, or the server whose tag it is."""


@dataclass(frozen=True)
class Difference:
    """Something that is not as it should be."""

    kind: str
    """A short name of what it is, such as `gpu-count`; the operator's guide lists them."""
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
        return self.by_hand if self.step is None else self.step.act


def differences(facts: Facts, settle: float) -> list[Difference]:
    """Return all differences, in the order in which they are to be repaired.

    What was changed in the last *settle* seconds is in flight.
    """
    stored = facts.stored
    moving = {one.id for one in stored.leases.values() if in_flight(one, stored.now, settle)}
    found = [*_rows(stored), *_leases(stored, moving)]
    if facts.servers is not None:
        found += _servers(stored, facts.servers, facts.gone, moving, settle)
    bound, on_gpus = _by_host(stored)
    for host, audit in sorted(facts.endpoints.items()):
        found += _endpoint(host, audit, bound[host], moving)
    for host, report in sorted(facts.monitors.items()):
        found += _monitor(stored, host, report, on_gpus[host], moving)
    return found


def _by_host(stored: Stored) -> tuple[Mapping[str, list[Lease]], Mapping[str, list[Lease]]]:
    """Return the leases that are bound to each host, and those with claims of its GPUs."""
    bound, on_gpus = defaultdict(list), defaultdict(list)
    for lease in stored.leases.values():
        if lease.bound_host is not None:
            bound[lease.bound_host].append(lease)
        for host in {claim.gpu.host_name for claim in lease.all_claims}:
            on_gpus[host].append(lease)
    return bound, on_gpus


def lasting(first: Iterable[Difference], second: Iterable[Difference]) -> list[Difference]:
    """Return the differences of the *second* look that the *first* one had, too."""
    before = set(first)
    return [one for one in second if one in before]


def in_flight(lease: Lease, now: datetime.datetime, settle: float) -> bool:
    """Return whether an engine takes steps of *lease*, or it was changed in the last *settle* seconds."""
    if lease.status in (Status.CLAIMED, Status.BOOTING, Status.RELEASING) or lease.moving:
        return True
    if lease.status == Status.ERROR and (lease.claims or lease.server_id or lease.bound_host):
        return True  # it is being cleaned up
    owned = lease.driven_until is not None and lease.driven_until > now
    return owned or (now - lease.updated_at).total_seconds() < settle


def _rows(stored: Stored) -> Iterator[Difference]:
    for uuid, said in sorted(stored.miscounted.items()):
        if uuid in stored.over_committed:
            yield _over_committed(stored, uuid, said)
        else:
            yield Difference("gpu-count", f"GPU {uuid}", said, Step(Act.RECOUNT, uuid))
    for lease_id, gpus in sorted(stored.orphaned_claims.items()):
        known = "waits in the queue" if lease_id in stored.leases else "is not stored"
        said = f"it {known}, and claims of it are on {', '.join(sorted(set(gpus)))}"
        yield Difference(
            "claim-of-nobody", _lease(lease_id), said, Step(Act.DELETE_CLAIMS, lease_id)
        )
    for lease_id, reservations in sorted(stored.orphaned_shares.items()):
        said = f"it has no GPUs, and shares of reservation {', '.join(sorted(set(reservations)))} are said to be its"
        yield Difference("share-of-nobody", _lease(lease_id), said, Step(Act.FREE_SHARES, lease_id))


def _over_committed(stored: Stored, uuid: str, said: str) -> Difference:
    claiming = (
        one for one in stored.leases.values() if uuid in {c.gpu_uuid for c in one.all_claims}
    )
    ids = ", ".join(one.id for one in sorted(claiming, key=lambda one: one.created_at))
    todo = f"end one of the leases that claim it, or the reservations that keep it: {ids or 'none'}"
    said = f"more of it is claimed than it has: {said}"
    return Difference("gpu-over-committed", f"GPU {uuid}", said, None, todo)


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
            yield Difference("lease-left-something", name, said, Step(Act.RECONCILE, lease.id))
        elif lease.status == Status.ACTIVE and len(lease.claims) < lease.count:
            said = f"it has {len(lease.claims)} of its {lease.count} cGPUs"
            yield Difference("cgpus-lost", name, said, Step(Act.FAIL_LEASE, lease.id))
        elif lease.status == Status.ERROR and lease.claimed_at and not lease.released_at:
            said = "it has no GPUs, and its usage goes on being counted"
            yield Difference("usage-open", name, said, Step(Act.END_USAGE, lease.id))
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
    stored: Stored,
    servers: Mapping[str, ListedServer],
    gone: frozenset[str],
    moving: set[str],
    settle: float,
) -> Iterator[Difference]:
    for lease in _settled(stored, moving):
        if lease.status != Status.ACTIVE or not lease.has_server:
            continue
        name, server = _lease(lease.id), servers.get(lease.server_id or "")
        if server is None:
            if lease.id in gone:
                said = f"the cloud has no server {lease.server_id}"
                yield Difference("server-gone", name, said, Step(Act.RECONCILE, lease.id))
            continue
        if server.host != lease.server_host:
            said = f"server {server.id} is on {server.host or 'no host'}, and was on {lease.server_host}"
            yield Difference("server-moved", name, said, Step(Act.RECONCILE, lease.id))
        if lease.plain_server_id is None and lease.id not in server.lease_ids:
            said = f"server {server.id} has not the tag of its lease"
            yield Difference("tag-lost", name, said, Step(Act.SET_TAG, lease.id, server.id))
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
        yield Difference("server-of-nobody", name, said, Step(Act.REMOVE_TAG, lease_id, server.id))
        return
    has = lease.server_id or lease.plain_server_id
    if (
        lease.status == Status.ACTIVE
        and server.project_id == lease.project_id
        and has != server.id
        and not in_flight(lease, stored.now, settle)
    ):
        said = f"it, {where}, has the tag of lease {lease_id}, whose server is {has}"
        yield Difference("server-second", name, said, Step(Act.REMOVE_TAG, lease_id, server.id))
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
        yield Difference("server-outlived", name, said, Step(Act.RECONCILE, lease_id))


def _endpoint(
    host: str, audit: EndpointAudit, bound: Sequence[Lease], moving: set[str]
) -> Iterator[Difference]:
    has = {binding.port_id: binding for binding in audit.bindings}
    for lease in bound:
        if lease.id in moving or lease.status != Status.ACTIVE or len(lease.claims) < lease.count:
            continue
        order = Step(Act.ORDER_BINDING, lease.id, host)
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
            yield Difference(
                "binding-of-nobody", subject, said, Step(Act.REMOVE_BINDING, port_id, host)
            )
    if not any(lease.id in moving for lease in bound):
        for each in audit.kernel:
            said = f"it is {each.how} in the kernel"
            yield Difference(
                f"map-{each.how}", f"{each.what} on {host}", said, Step(Act.AUDIT_ENDPOINT, host)
            )


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
    stored: Stored, host: str, report: Mapping[str, Any], there: Sequence[Lease], moving: set[str]
) -> Iterator[Difference]:
    step = Step(Act.UPDATE_GPU_HOST, host)
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
        for claim in lease.all_claims
        for offset in range(lease.ports_per_daemon)
    }


def _settled(stored: Stored, moving: set[str]) -> list[Lease]:
    return [lease for lease in stored.leases.values() if lease.id not in moving]


def _lease(lease_id: str) -> str:
    return f"lease {lease_id}"
