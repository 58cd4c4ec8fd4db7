# SPDX-License-Identifier: Apache-2.0
"""The launch of a lease, from a validated body to a lease that has its GPUs or waits for them."""

from __future__ import annotations

import ipaddress
import re
import uuid
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from oslo_utils import timeutils

from gsaas import exceptions
from gsaas.api import cgpus, idempotency, limits, queue, rbac
from gsaas.api.request import ApiRequest
from gsaas.api.service import ApiService
from gsaas.api.times import parse
from gsaas.gpgpums import lease_end
from gsaas.gpgpums.allocation import UNREACHABLE
from gsaas.gpgpums.lease_end import End
from gsaas.objects import timings
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.placement import Refusal
from gsaas.objects.request import Request
from gsaas.remoting import user_data
from gsaas.remoting.base import ClientDevice


def launch(request: ApiRequest) -> tuple[Lease, list[str]]:
    """Return the lease that the body asks for and notes about its server fields.

    The lease has its GPUs or, if the request is to wait, a place in the queue. Raises the error that explains why
    neither is possible; nothing is changed then.
    """
    service, body = request.service, request.body["lease"]
    if body.get("server", {}) is None:
        request.authorise(rbac.LEASES_CREATE_WITHOUT_SERVER)
    reservation_id = _reservation(body)
    policy = body["cgpus"].get("policy")
    gpu_request = cgpus.parse(service, body["cgpus"], _consumer(body))
    wait_policy = queue.wait_policy(request, body)
    end = lease_end.asked(service.end_policy, wanted_end(body), service.database.now())
    lease = idempotency.mark(request, _new_lease(request, body, gpu_request, end))
    notes = _check_user_data(service, lease)
    service.stored_leases.add(lease.project_id)
    quota = service.limits.of(request.project_id)
    named, host = body.get("consumer", {}).get("host"), gpu_request.consumer_host
    aliases = [f"consumer.host: {named} is {host} here"] if named != host else []
    if reservation_id is not None:
        lease = lease.with_(reservation_id=reservation_id)
        if lease.has_server:
            lease, more = _check_server(request, lease)
            notes += more
    elif lease.has_server:
        # The cloud's check takes long. So see first whether there are GPUs, and claim them only after it.
        with timeutils.StopWatch() as watch:
            answer = service.claims.check(gpu_request, policy, lease.priority)
        took = {timings.GPU_SELECTION: watch.elapsed()}
        if isinstance(answer, Refusal):
            if answer.impossible:
                raise cgpus.capacity_error(answer)
            if wait_policy is None:
                raise queue.with_estimate(request, cgpus.capacity_error(answer))
        elif wait_policy is None:
            limits.check(request, quota, answer)
        with timeutils.StopWatch() as watch:
            lease, more = _check_server(request, lease)
        notes += more
        took[timings.CHECK] = watch.elapsed()
        lease = lease.with_(timings=took)
    try:
        lease = service.claims.claim(lease, gpu_request, policy, quota)
    except UNREACHABLE:
        raise  # a sub-class of those below, but waiting for GPUs would not help
    except (exceptions.NoCapacity, exceptions.QuotaExceeded, exceptions.ClaimConflict) as error:
        if wait_policy is None:
            if isinstance(error, exceptions.NoCapacity) and reservation_id is None:
                queue.with_estimate(request, error)
            raise
        lease = service.claims.queue.join(lease, gpu_request, policy, quota, wait_policy)
    return lease, [*aliases, *notes]


def _reservation(body: Mapping[str, Any]) -> str | None:
    """Return the id of the reservation that a launch names; None if it names none.

    Raises `BadRequest` for a launch that would wait for other GPUs.
    """
    reservation_id: str | None = body.get("reservation")
    if reservation_id is not None and "wait" in body:
        raise exceptions.BadRequest(
            reason="a launch in a reservation does not wait in the queue: leave out lease.wait"
        )
    return reservation_id


def wanted_end(body: Mapping[str, Any]) -> End:
    """Return the end that the request names. Raises `BadRequest` if it names two."""
    ends_at = body.get("ends_at")
    return End(None if ends_at is None else parse(ends_at, "lease.ends_at"), body.get("duration"))


def _new_lease(request: ApiRequest, body: dict[str, Any], gpu_request: Request, end: End) -> Lease:
    """Return a lease with what the caller decides; the claim sets the other attributes."""
    lease_id = str(uuid.uuid4())
    consumer = body.get("consumer", {})
    now = request.service.database.now()
    return Lease(
        id=lease_id,
        project_id=request.project_id,
        user_id=request.context.user_id or "",  # Keystone's tokens always have a user
        name=body.get("name", f"lease-{lease_id[:8]}"),
        status=Status.QUEUED,
        count=gpu_request.count,
        mode=gpu_request.mode,
        memory_mb=gpu_request.memory_mb,
        locality=gpu_request.locality,
        requirements=gpu_request.stored_requirements(),
        priority=body.get("priority", 0),
        remoting=request.service.drivers.of(gpu_request.kind).name,
        has_server=body.get("server", {}) is not None,
        keepalive=body.get("keepalive"),
        duration=end.duration,
        ends_at=end.at,
        movable=body.get("movable"),
        consumer_host=gpu_request.consumer_host,
        consumer_uid=consumer.get("uid"),
        consumer_address=consumer.get("address"),
        server_request=body.get("server") or {},
        created_at=now,
        updated_at=now,
    )


def _consumer(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the consumer of a lease without a server; None for a lease with one.

    Raises `BadRequest` for a consumer or a keepalive together with a server, and for an invalid address.
    """
    if body.get("server", {}) is None:
        consumer: dict[str, Any] = body.get("consumer", {})
        if "address" in consumer:
            _check_address(consumer["address"])
        return consumer
    if present := {"consumer", "keepalive"} & body.keys():
        raise exceptions.BadRequest(
            reason=f"lease.{min(present)} applies only to leases without a server: "
            "set lease.server to null, or leave it out"
        )
    return None


def _check_address(address: str) -> None:
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        raise exceptions.BadRequest(
            reason=f'lease.consumer.address is "{address}"; it must be an IPv4 address'
        ) from None


def _check_server(request: ApiRequest, lease: Lease) -> tuple[Lease, list[str]]:
    """Return *lease* with all fields of its server, which the cloud would make, and notes. Raises `ServerRefused`."""
    cloud = request.service.cloud
    server, defaults = cloud.complete(request.context, dict(lease.server_request))
    notes = cloud.check(request.context, server)
    return lease.with_(server_request=server), [*defaults, *notes]


def _check_user_data(service: ApiService, lease: Lease) -> list[str]:
    """Return what the caller should know about the caller's user data.

    Raises `BadRequest` or `UserDataTooLarge` for what cannot be combined with that of GSaaS. Without user data of the
    caller there is nothing to check: GSaaS's alone is small.
    """
    encoded = lease.server_request.get("user_data")
    if encoded is None:
        return []
    try:
        b64decode(re.sub(r"\s", "", encoded), validate=True)  # base64 tools break lines
    except ValueError:
        raise exceptions.BadRequest(
            reason="lease.server.user_data is not base64, which Nova requires"
        ) from None
    # The claim chooses the GPUs later, but the addresses of a VM are always the first ones.
    masked = service.claims.masked.first(lease.count, lease.remoting)
    devices = [ClientDevice(address, lease.memory_mb) for address in masked]
    driver = service.drivers.named(lease.remoting)
    user_data.compose(service.conf, driver, lease.id, devices, encoded)
    return user_data.notes(encoded)
