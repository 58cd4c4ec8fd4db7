# SPDX-License-Identifier: Apache-2.0
"""Vendor data: Nova asks for it when it makes a plain server, or when the server asks Nova's metadata service.

Nova waits a few seconds, and meanwhile the server does not boot. So the answer comes in time, or an error that says
why not. The masked addresses of a server are always the first ones: a server whose lease still waits for GPUs has its
environment all the same, and its connections are refused until the lease has them.
"""

from __future__ import annotations

import concurrent.futures
import json
import logging
import time

from gsaas import exceptions
from gsaas.api.request import ApiRequest, ApiResponse
from gsaas.api.service import ApiService
from gsaas.context import RequestContext
from gsaas.db import leases
from gsaas.gpgpums.plain_servers import PlainServers
from gsaas.objects import timings
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import ENTITLED, Status
from gsaas.remoting.base import ClientDevice
from gsaas.remoting.devices import devices_of
from gsaas.remoting.user_data import compose_vendor_data

LOG = logging.getLogger(__name__)

_THREADS = concurrent.futures.ThreadPoolExecutor(8, "vendordata")
"""Threads that claim for servers. They finish even if Nova was answered before."""


def show(request: ApiRequest) -> ApiResponse:
    """Return what cloud-init is to run in a server, in the form of Nova's dynamic vendor data; claim its cGPUs first.

    The answer is JSON null for a server without properties of GSaaS, and for one that GSaaS has made, whose user data
    has it all.
    """
    try:
        text = _answer(request)
    except exceptions.GsaasError as error:
        # All that Nova shows of an error is its title: that becomes the fault of the server.
        error.facts["title"] = str(error)
        raise
    return ApiResponse(200, f"{json.dumps(text)}\n", {"Content-Type": "application/json"})


def _answer(request: ApiRequest) -> str | None:
    service, body = request.service, request.body
    server_id = body["instance-id"].lower()
    lease = None
    if service.plain_servers is not None:
        roles = [name.strip() for name in (body.get("boot-roles") or "").split(",") if name.strip()]
        lease = _equip(request, service.plain_servers, server_id, roles)
    if lease is None:
        return None
    if lease.project_id != body["project-id"]:
        raise exceptions.NotFound(noun="server", id=server_id, foreign=True)
    return _vendor_data(service, lease)


def _equip(
    request: ApiRequest, plain_servers: PlainServers, server_id: str, roles: list[str]
) -> Lease | None:
    """Return the lease of a server; None if it gets none. Raises `PlainServerLate` if that takes too long."""

    def equip() -> Lease | None:
        try:
            lease = plain_servers.equip(server_id, roles)
        except exceptions.GsaasError as error:
            LOG.info("server %s gets no cGPUs: %s", server_id, error)
            raise
        if lease is not None and lease.status == Status.CLAIMED:
            owner = RequestContext.of(user_id=lease.user_id, project_id=lease.project_id, roles=[])
            request.service.engine.lease_changed(owner, lease.id)
        return lease

    seconds = request.service.conf.plain_servers.vendordata_timeout
    left = seconds - (time.perf_counter() - request.connection.began)
    try:
        return _THREADS.submit(equip).result(max(0.0, left))
    except concurrent.futures.TimeoutError:
        raise exceptions.PlainServerLate(id=server_id, seconds=seconds) from None


def _is_refusal(lease: Lease) -> bool:
    """Return whether a lease says that its server is not to boot.

    A server that has booted once is rebuilt, or unshelved, whatever became of its lease meanwhile.
    """
    if lease.status == Status.ERROR:
        return timings.DEPLOYMENT not in (lease.timings or {})  # it never was ACTIVE
    ended = lease.status == Status.RELEASED
    return ended and lease.claimed_at is None and lease.queued_at is None


def _vendor_data(service: ApiService, lease: Lease) -> str | None:
    """Return the vendor data for the server of *lease*; None if the lease is over, and the server outlives it.

    Raises `PlainServerRefused` if the lease was refused, or has failed before it was ACTIVE.
    """
    if _is_refusal(lease):
        raise exceptions.PlainServerRefused(
            id=lease.plain_server_id, reason=lease.fault_message or "its lease was refused"
        )
    if lease.status not in (Status.QUEUED, *ENTITLED):
        return None
    if lease.status == Status.QUEUED:
        masked = service.claims.masked.first(lease.count, lease.remoting)
        devices = [ClientDevice(address, lease.memory_mb) for address in masked]
    else:
        with service.database.reading() as connection:
            devices = devices_of(leases.get(connection, lease.id))
    return compose_vendor_data(
        service.conf, service.drivers.named(lease.remoting), lease.id, devices
    )
