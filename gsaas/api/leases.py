"""Leases: launch, list, show, tell the environment, terminate."""

from __future__ import annotations

import re
import uuid
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any

from oslo_utils import timeutils
from sqlalchemy.orm import Session

from gsaas import exceptions, lifecycle, timings
from gsaas.api import cgpus, limits
from gsaas.api.rbac import leases as rbac
from gsaas.api.service import Call, Reply, Service
from gsaas.api.times import iso
from gsaas.cloudinit.environment import shell_exports
from gsaas.db import leases, models
from gsaas.db.database import retried
from gsaas.engine import user_data
from gsaas.gpgpums.state import Refusal, Request
from gsaas.lifecycle import Status
from gsaas.metrics import counted
from gsaas.remoting.base import Device
from gsaas.rodvr.bindings import Address

PATH = "/v1/leases"


def create(call: Call) -> Reply:
    """Claim cGPUs for a VM and have it booted.

    Whatever can be refused is refused before anything is claimed: first for want of GPUs, then for
    the project's quota, then by the cloud, which looks at the server.
    """
    with counted.refusals():
        lease, notes = _launch(call)
    counted.granted(lease.policy)
    call.service.engine.lease_changed(call.context, lease.id)
    with call.service.database.read() as session:
        shown = show_lease(call, session, leases.get(session, lease.id))
    location = call.link(f"{PATH}/{lease.id}")["href"]
    return Reply(202, {"lease": shown, "notes": notes}, {"Location": location})


def _launch(call: Call) -> tuple[models.Lease, list[str]]:
    """Return the lease that was asked for, with its GPUs, and what the cloud has to say about it."""
    service, asked = call.service, call.body["lease"]
    policy = asked["cgpus"].get("policy")
    wanted = cgpus.request(service, asked["cgpus"])
    lease = _lease(call, asked, wanted)
    _check_user_data(service, lease)
    with timeutils.StopWatch() as watch:
        answer = service.claims.check(wanted, policy)
    lease.timings = {timings.GPU_SELECTION: watch.elapsed()}
    if isinstance(answer, Refusal):
        raise cgpus.refused(answer)
    quota = service.limits.of(call.context.project_id)
    limits.check(call, quota, answer)
    with timeutils.StopWatch() as watch:
        notes = service.cloud.check(call.context, lease.server_request)
    lease.timings[timings.CHECK] = watch.elapsed()
    return service.claims.claim(lease, wanted, policy, quota), notes


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
    """Show a lease and its story."""
    with call.service.database.read() as session:
        lease = _find(call, session, lease_id, rbac.SHOW)
        shown = show_lease(call, session, lease)
        shown["events"] = [_event(call, event) for event in leases.story(session, lease_id)]
    return Reply(200, {"lease": shown})


def environment(call: Call, lease_id: str) -> Reply:
    """Tell the variables with which a program in the VM finds its cGPUs."""
    with call.service.database.read() as session:
        lease = _find(call, session, lease_id, rbac.ENVIRONMENT)
    if not lease.claims:
        raise exceptions.LeaseHoldsNothing(id=lease_id, status=lease.status)
    masked = [Address(claim.masked_ip, claim.masked_port) for claim in lease.claims]
    driver = call.service.driver(lease.remoting)
    variables = driver.environment(lease_id, _devices(masked, lease))
    match call.query.get("format", "json"):
        case "shell":
            return Reply(200, shell_exports(variables))
        case "dotenv":
            return Reply(200, _dotenv(variables))
        case _:
            return Reply(200, {"environment": variables})


@retried
def delete(call: Call, lease_id: str) -> Reply:
    """Have a lease's VM deleted and its GPUs given back. Asking twice is asking once."""
    with call.service.database.read() as session:
        _find(call, session, lease_id, rbac.DELETE)
    try:
        with call.service.database.write() as session:
            leases.transition(session, lease_id, lifecycle.Event.RELEASE)
    except exceptions.IllegalTransition as refusal:
        if refusal.facts["state"] != Status.RELEASING:
            raise exceptions.LeaseReleased(id=lease_id) from None
    call.service.engine.lease_changed(call.context, lease_id)
    with call.service.database.read() as session:
        return Reply(202, {"lease": show_lease(call, session, leases.get(session, lease_id))})


def show_lease(call: Call, session: Session, lease: models.Lease) -> dict[str, Any]:
    """Return a lease as the caller may see it: where it really is, is for admins."""
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
        "cgpus": {
            "count": lease.count,
            "mode": lease.mode,
            "memory_mb": lease.memory_mb,
            "locality": lease.locality,
            "policy": lease.policy,
        },
        "remoting": lease.remoting,
        "server": server,
        "devices": [_device(claim, inside) for claim in lease.claims],
        "fault": fault,
        "dropped_packets": _dropped(session, lease),
        "timings": _timings(lease),
        "links": [call.link(f"{PATH}/{lease.id}")],
    }


def _lease(call: Call, asked: dict[str, Any], wanted: Request) -> models.Lease:
    """Return the lease as far as the caller decides it; the claim fills in the rest."""
    lease_id = str(uuid.uuid4())
    now = timeutils.utcnow()
    return models.Lease(
        id=lease_id,
        project_id=call.context.project_id,
        user_id=call.context.user_id,
        name=asked.get("name", f"lease-{lease_id[:8]}"),
        count=wanted.count,
        mode=wanted.mode,
        memory_mb=wanted.memory_mb,
        locality=wanted.locality,
        remoting=call.service.remoting.name,
        server_request=asked.get("server", {}),
        created_at=now,
        updated_at=now,
    )


def _find(call: Call, session: Session, lease_id: str, rule: str) -> models.Lease:
    """Return a lease that the caller may know of and do this to."""
    everywhere = call.allows(rbac.LIST_ALL_PROJECTS)
    lease = leases.get(session, lease_id, None if everywhere else call.context.project_id)
    call.authorise(rule, _target(lease))
    return lease


def _target(lease: models.Lease) -> dict[str, str]:
    return {"project_id": lease.project_id, "user_id": lease.user_id}


def _device(claim: models.Claim, inside: bool) -> dict[str, Any]:
    device: dict[str, Any] = {
        "index": claim.position,
        "masked_address": f"{claim.masked_ip}:{claim.masked_port}",
        "memory_mb": claim.memory_mb,
    }
    if inside:
        address = claim.gpu.host.gpu_address
        device["gpu_uuid"] = claim.gpu_uuid
        device["gpu_host"] = claim.gpu.host_name
        device["real_address"] = address and f"{address}:{claim.gpu.daemon_port}"
    return device


def _event(call: Call, event: models.LeaseEvent) -> dict[str, Any]:
    return {
        "at": iso(event.at),
        "event": event.event,
        "status": event.status,
        "detail": event.detail if call.allows(rbac.SHOW_PLACEMENT) else None,
    }


def _dropped(session: Session, lease: models.Lease) -> dict[str, int] | None:
    """What the endpoint of its host last said it dropped of the VM's packets."""
    if lease.bound_host is None or lease.port_id is None:
        return None
    endpoint = session.get(models.Endpoint, lease.bound_host)
    bindings = endpoint.report.get("bindings", {}) if endpoint else {}
    return bindings.get(lease.port_id, {}).get("dropped_packets")


def _timings(lease: models.Lease) -> dict[str, float]:
    """The phases of its launch that are over, in the order in which they began."""
    known = lease.timings or {}
    return {phase: known[phase] for phase in timings.PHASES if phase in known}


def _devices(masked: Sequence[Address], lease: models.Lease) -> list[Device]:
    return [Device(address, lease.memory_mb) for address in masked]


def _check_user_data(service: Service, lease: models.Lease) -> None:
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
    devices = _devices(service.claims.masked.first(lease.count), lease)
    user_data.compose(service.conf, service.remoting, lease.id, devices, given)


def _dotenv(variables: Mapping[str, str]) -> str:
    """Lines of a .env file: in double quotes, with a backslash before what would end or expand."""
    return "".join(
        '{}="{}"\n'.format(name, re.sub(r'([\\"$`])', r"\\\1", value))
        for name, value in variables.items()
    )
