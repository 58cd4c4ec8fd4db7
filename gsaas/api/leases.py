"""Leases: launch, list, show, tell the environment, terminate."""

from __future__ import annotations

import ipaddress
import re
import uuid
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from oslo_utils import timeutils
from sqlalchemy.orm import Session

from gsaas import exceptions
from gsaas.api import cgpus, degraded, limits, queue
from gsaas.api.rbac import leases as rbac
from gsaas.api.service import Call, Reply, Service
from gsaas.api.times import iso
from gsaas.cloudinit.environment import shell_exports
from gsaas.db import leases, models, plain
from gsaas.db.plain import AnyClaim, AnyLease
from gsaas.gpgpums.allocation import UNREACHABLE
from gsaas.grants import grant_client
from gsaas.metrics import counted
from gsaas.objects import timings
from gsaas.objects.access import Access
from gsaas.objects.lifecycle import Status
from gsaas.objects.placement import Refusal
from gsaas.objects.request import Request
from gsaas.remoting import user_data
from gsaas.remoting.base import Device
from gsaas.remoting.devices import devices_of, real_address

PATH = "/v1/leases"


def create(call: Call) -> Reply:
    """Claim cGPUs, for a VM that is then booted or for a consumer that is there already.

    Whatever can be refused is refused before anything is claimed: first for want of GPUs, then for
    the project's quota, then by the cloud, which looks at the server. A lease without a server that
    can be used at once is answered with its environment.
    """
    with counted.refusals():
        lease, notes = _launch(call)
    if lease.queued_at is None:
        counted.granted(lease.policy)
        if lease.status == Status.ACTIVE:
            counted.launched(lease.timings or {})
    if lease.has_server or lease.status == Status.CLAIMED:
        call.service.engine.lease_changed(call.context, lease.id)
    if lease.queued_at is not None:
        queue.await_change(call, lease.id, Status.QUEUED, call.query.get("timeout", 0))
    if lease.status == Status.ACTIVE and lease.queued_at is None:
        body: dict[str, Any] = {"lease": show_lease(call, None, lease), "notes": notes}
    else:
        with call.service.database.read() as session:
            lease = leases.known(session.connection(), lease.id)
            body = {"lease": show_lease(call, session, lease), "notes": notes}
    at_once = lease.status == Status.ACTIVE
    if at_once:
        body["environment"] = _environment(call.service, lease)
    location = call.link(f"{PATH}/{lease.id}")["href"]
    return Reply(201 if at_once else 202, body, {"Location": location})


def _launch(call: Call) -> tuple[plain.Lease, list[str]]:
    """Return the lease that was asked for, with its GPUs, and what the cloud has to say about it."""
    service, asked = call.service, call.body["lease"]
    policy = asked["cgpus"].get("policy")
    wanted = cgpus.request(service, asked["cgpus"], _consumer(asked))
    patience = queue.patience(call, asked)
    lease = _lease(call, asked, wanted)
    _check_user_data(service, lease)
    quota = service.limits.of(call.context.project_id)
    notes: list[str] = []
    if lease.has_server:
        with timeutils.StopWatch() as watch:
            answer = service.claims.check(wanted, policy, lease.priority)
        lease.timings = {timings.GPU_SELECTION: watch.elapsed()}
        if isinstance(answer, Refusal) and (patience is None or answer.impossible):
            raise cgpus.refused(answer)
        if patience is None:
            limits.check(call, quota, answer)
        with timeutils.StopWatch() as watch:
            notes = list(service.cloud.check(call.context, lease.server_request))
        lease.timings[timings.CHECK] = watch.elapsed()
    try:
        lease = service.claims.claim(lease, wanted, policy, quota)
    except UNREACHABLE:
        raise  # it is not GPUs that it would wait for
    except (exceptions.NoCapacity, exceptions.QuotaExceeded, exceptions.ClaimConflict):
        if patience is None:
            raise
        lease = service.claims.wait(lease, wanted, policy, quota, patience)
    return lease, notes


def index(call: Call) -> Reply:
    """List leases, oldest first."""
    query, project_id = dict(call.query), call.context.project_id
    if query.pop("all_projects", False):
        call.authorise(rbac.LIST_ALL_PROJECTS)
        project_id = None
    query["limit"] = call.limit + 1  # one more tells whether there is a next page
    with call.service.database.read() as session:
        found = leases.page(session, project_id=project_id, **query)
        shown = [show_lease(call, session, lease) for lease in found[: call.limit]]
    body: dict[str, Any] = {"leases": shown}
    if len(found) > call.limit:
        body["leases_links"] = call.next_page(PATH, shown[-1]["id"])
    return Reply(200, body)


def show(call: Call, lease_id: str) -> Reply:
    """Show a lease and its story; on request as soon as its status is another one."""
    if (status := call.query.get("while_status")) is not None:
        with call.service.database.read() as session:
            _find(call, session, lease_id, rbac.SHOW)
        queue.await_change(call, lease_id, status, call.query.get("timeout", 0))
    with call.service.database.read() as session:
        lease = _find(call, session, lease_id, rbac.SHOW)
        shown = show_lease(call, session, lease)
        shown["events"] = [_event(call, event) for event in leases.story(session, lease_id)]
    return Reply(200, {"lease": shown})


def environment(call: Call, lease_id: str) -> Reply:
    """Tell the variables with which a program finds its cGPUs."""
    with call.service.database.read() as session:
        lease = _find(call, session, lease_id, rbac.ENVIRONMENT)
    if not lease.claims:
        raise exceptions.LeaseHasNoGpus(id=lease_id, status=lease.status)
    variables = _environment(call.service, lease)
    match call.query.get("format", "json"):
        case "shell":
            return Reply(200, shell_exports(variables))
        case "dotenv":
            return Reply(200, _dotenv(variables))
        case _:
            return Reply(200, {"environment": variables})


def delete(call: Call, lease_id: str) -> Reply:
    """Have a lease's VM deleted and its GPUs given back. Asking twice is asking once.

    What holds nothing but its claims is RELEASED with the answer; the engine sees to the rest.
    """

    def may_be_deleted(lease: plain.Lease) -> bool:
        _check_owner(call, lease, rbac.DELETE)
        return lease.status != Status.RELEASING

    try:
        lease = call.service.claims.terminate(lease_id, if_=may_be_deleted)
    except exceptions.IllegalTransition:
        raise exceptions.LeaseReleased(id=lease_id) from None
    if lease is not None and lease.status == Status.RELEASED:
        return Reply(202, {"lease": show_lease(call, None, lease)})
    call.service.engine.lease_changed(call.context, lease_id)
    with call.service.database.read() as session:
        return Reply(202, {"lease": show_lease(call, session, leases.get(session, lease_id))})


def keepalive(call: Call, lease_id: str) -> Reply:
    """Say that the client of a lease is still there."""
    with call.service.database.read() as session:
        _find(call, session, lease_id, rbac.KEEP)
    with call.service.database.write() as session:
        lease = leases.keep(session, lease_id)
    if lease.status == Status.RELEASED:
        raise exceptions.LeaseReleased(id=lease_id)
    return Reply(
        200,
        {"lease": {"id": lease.id, "status": lease.status, "kept_until": iso(lease.kept_until)}},
    )


def show_lease(call: Call, session: Session | None, lease: AnyLease) -> dict[str, Any]:
    """Return a lease as the caller may see it: where it really is, is for admins.

    *session* may be None for one that neither waits nor has a binding.
    """
    inside = call.allows(rbac.SHOW_PLACEMENT, _target(lease))
    server = {"id": lease.server_id}
    if inside:
        server["host"] = lease.server_host
    fault = None
    if lease.fault_message is not None:
        fault = {"step": lease.fault_step, "message": lease.fault_message}
    return {
        "id": lease.id,
        "name": lease.name,
        "status": lease.status,
        "project_id": lease.project_id,
        "user_id": lease.user_id,
        "created_at": iso(lease.created_at),
        "updated_at": iso(lease.updated_at),
        "released_at": iso(lease.released_at),
        "kept_until": iso(lease.kept_until),
        "queued_at": iso(lease.queued_at),
        "wait_until": iso(lease.wait_until),
        "priority": lease.priority,
        "queue": queue.describe(call, session, lease),
        "cgpus": cgpus.describe(lease),
        "remoting": lease.remoting,
        "access": lease.access,
        "server": server if lease.has_server else None,
        "consumer": None if lease.has_server else _shown_consumer(lease),
        **_condition(call, lease, inside),
        "devices": [_device(lease, claim, inside) for claim in lease.claims],
        "fault": fault,
        "dropped_packets": _dropped(session, lease),
        "timings": _timings(lease),
        "links": [call.link(f"{PATH}/{lease.id}")],
    }


def _condition(call: Call, lease: AnyLease, inside: bool) -> dict[str, Any]:
    """Whether the lease has all it was given; why not names GPUs and hosts."""
    reasons = degraded.reasons(lease, call.service.conf.gpgpums.heartbeat_timeout)
    return {"degraded": bool(reasons), **({"degraded_reasons": reasons} if inside else {})}


def _lease(call: Call, asked: dict[str, Any], wanted: Request) -> plain.Lease:
    """Return the lease as far as the caller decides it; the claim fills in the rest."""
    lease_id = str(uuid.uuid4())
    consumer = asked.get("consumer", {})
    now = timeutils.utcnow()
    return plain.Lease(
        id=lease_id,
        project_id=call.context.project_id,
        user_id=call.context.user_id,
        name=asked.get("name", f"lease-{lease_id[:8]}"),
        count=wanted.count,
        mode=wanted.mode,
        memory_mb=wanted.memory_mb,
        locality=wanted.locality,
        requirements=wanted.requirements(),
        priority=asked.get("priority", 0),
        remoting=call.service.remoting.name,
        has_server=asked.get("server", {}) is not None,
        keepalive=asked.get("keepalive"),
        consumer_host=wanted.consumer_host,
        consumer_uid=consumer.get("uid"),
        consumer_address=consumer.get("address"),
        server_request=asked.get("server") or {},
        created_at=now,
        updated_at=now,
    )


def _consumer(asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """What is asked of the consumer of a lease that stands alone; None if it has a server.

    Raises `BadRequest` for a consumer beside a server.
    """
    if asked.get("server", {}) is None:
        consumer = asked.get("consumer", {})
        if "address" in consumer:
            _check_address(consumer["address"])
        return consumer
    if known := {"consumer", "keepalive"} & asked.keys():
        raise exceptions.BadRequest(
            reason=f"lease.{min(known)} is for leases without a server: say server null, or leave it out"
        )
    return None


def _check_address(address: str) -> None:
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        raise exceptions.BadRequest(
            reason=f'lease.consumer.address is "{address}"; it must be an IPv4 address'
        ) from None


def _shown_consumer(lease: AnyLease) -> dict[str, Any]:
    return {
        "host": lease.consumer_host,
        "uid": lease.consumer_uid,
        "address": lease.consumer_address,
    }


def _environment(service: Service, lease: AnyLease) -> dict[str, str]:
    """The variables for whoever uses *lease*; reads its claims, GPUs and their hosts."""
    variables = service.driver(lease.remoting).environment(lease.id, devices_of(lease))
    if lease.has_server:
        return variables
    own = {grant_client.LEASE: lease.id}
    if lease.access == Access.DIRECT and service.keyring and lease.admitted_address is None:
        own[grant_client.GRANT] = service.keyring.sign(
            lease.id, lease.project_id, timeutils.utcnow()
        )
        if port := service.conf.grants.gate_port:
            own[grant_client.GATE] = f"{lease.claims[0].gpu.host.gpu_address}:{port}"
    return {**own, **variables}


def _find(call: Call, session: Session, lease_id: str, rule: str) -> models.Lease:
    """Return a lease that the caller may know of and do this to."""
    everywhere = call.allows(rbac.LIST_ALL_PROJECTS)
    lease = leases.get(session, lease_id, None if everywhere else call.context.project_id)
    call.authorise(rule, _target(lease))
    return lease


def _check_owner(call: Call, lease: AnyLease, rule: str) -> None:
    """What `_find` checks, of a lease that is there: `NotFound`, `Forbidden`."""
    own = lease.project_id == call.context.project_id
    if not own and not call.allows(rbac.LIST_ALL_PROJECTS):
        raise exceptions.NotFound(noun="lease", id=lease.id)
    call.authorise(rule, _target(lease))


def _target(lease: AnyLease) -> dict[str, str]:
    return {"project_id": lease.project_id, "user_id": lease.user_id}


def _device(lease: AnyLease, claim: AnyClaim, inside: bool) -> dict[str, Any]:
    """One cGPU, with as much of where it really is as the consumer needs or the caller may know."""
    masked = claim.masked_ip and f"{claim.masked_ip}:{claim.masked_port}"
    device: dict[str, Any] = {
        "index": claim.position,
        "masked_address": masked,
        "memory_mb": claim.memory_mb,
    }
    if inside or lease.access == Access.NATIVE:
        device["gpu_uuid"] = claim.gpu_uuid
    if inside:
        device["gpu_host"] = claim.gpu.host_name
    if inside or lease.access == Access.DIRECT:
        known = claim.gpu.host.gpu_address is not None
        device["real_address"] = str(real_address(claim)) if known else None
    return device


def _event(call: Call, event: models.LeaseEvent) -> dict[str, Any]:
    return {
        "at": iso(event.at),
        "event": event.event,
        "status": event.status,
        "detail": event.detail if call.allows(rbac.SHOW_PLACEMENT) else None,
    }


def _dropped(session: Session, lease: AnyLease) -> dict[str, int] | None:
    """What the endpoint of its host last said it dropped of the VM's packets."""
    if lease.bound_host is None or lease.port_id is None:
        return None
    endpoint = session.get(models.Endpoint, lease.bound_host)
    bindings = endpoint.report.get("bindings", {}) if endpoint else {}
    return bindings.get(lease.port_id, {}).get("dropped_packets")


def _timings(lease: AnyLease) -> dict[str, float]:
    """The phases of its launch that are over, in the order in which they began."""
    known = lease.timings or {}
    return {phase: known[phase] for phase in timings.PHASES if phase in known}


def _check_user_data(service: Service, lease: AnyLease) -> None:
    """Refuse user data that could not be carried along with ours: `BadRequest`, `UserDataTooLarge`.

    Without any from the caller there is nothing to check: ours alone is small.
    """
    given = lease.server_request.get("user_data")
    if given is None:
        return
    try:
        b64decode(re.sub(r"\s", "", given), validate=True)  # base64 tools break lines
    except ValueError:
        raise exceptions.BadRequest(
            reason="lease.server.user_data is not base64, as Nova takes it"
        ) from None
    masked = service.claims.masked.first(lease.count)
    devices = [Device(address, lease.memory_mb) for address in masked]
    user_data.compose(service.conf, service.remoting, lease.id, devices, given)


def _dotenv(variables: Mapping[str, str]) -> str:
    """Lines of a .env file: in double quotes, with a backslash before what would end or expand."""
    return "".join(
        '{}="{}"\n'.format(name, re.sub(r'([\\"$`])', r"\\\1", value))
        for name, value in variables.items()
    )
