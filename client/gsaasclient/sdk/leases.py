# SPDX-License-Identifier: Apache-2.0
"""Leases."""

from __future__ import annotations

from typing import Any, Self

import requests
from keystoneauth1 import exceptions as keystone
from keystoneauth1.adapter import Adapter
from openstack import resource

from gsaasclient import idempotency
from gsaasclient.sdk.base import Resource

ENDED = ("ERROR", "RELEASING", "RELEASED")
"""Statuses from which a lease does not become ACTIVE."""


class Lease(Resource):
    """cGPUs, with a VM or for an existing consumer. The attributes are the API's fields of the same names."""

    resource_key = "lease"
    resources_key = "leases"
    base_path = "/leases"

    allow_create = True
    allow_fetch = True
    allow_commit = True
    allow_delete = True
    allow_list = True
    commit_method = "PATCH"

    _query_mapping = resource.QueryParameters(
        "status",
        "name",
        "server_id",
        "all_projects",
        "sort_key",
        "sort_dir",
        changes_since="changes-since",
    )

    access = resource.Body("access")
    cgpus = resource.Body("cgpus", type=dict)
    consumer = resource.Body("consumer", type=dict)
    created_at = resource.Body("created_at")
    degraded_reasons = resource.Body("degraded_reasons", type=list)
    """For administrators only."""
    devices = resource.Body("devices", type=list)
    dropped_packets = resource.Body("dropped_packets", type=dict)
    events = resource.Body("events", type=list)
    """Of a lease that was fetched, not of one in a list."""
    fault = resource.Body("fault", type=dict)
    is_degraded = resource.Body("degraded", type=bool)
    kept_until = resource.Body("kept_until")
    priority = resource.Body("priority", type=int)
    project_id = resource.Body("project_id")
    queue = resource.Body("queue", type=dict)
    queued_at = resource.Body("queued_at")
    released_at = resource.Body("released_at")
    remoting = resource.Body("remoting")
    server = resource.Body("server", type=dict)
    """In a request: Nova's fields of a server; None for a lease without a VM."""
    reservation = resource.Body("reservation")
    """The id of the reservation that it was launched in."""
    status = resource.Body("status")
    timings = resource.Body("timings", type=dict)
    updated_at = resource.Body("updated_at")
    user_id = resource.Body("user_id")
    wait_until = resource.Body("wait_until")

    wait = resource.Body("wait", type=int)
    """Of a request: seconds to wait in the queue; None for no limit."""
    is_attended = resource.Body("attended", type=bool)
    """Of a request: whether it leaves the queue when its client stops to ask with `while_status`."""
    keepalive = resource.Body("keepalive", type=int)
    """Of a request: seconds after which the lease ends if nobody has kept it alive."""

    idle_since = resource.Body("idle_since")
    """Since when nothing has used it; None if it is in use, or that is not known."""
    reclaim_at = resource.Body("reclaim_at")
    """When it loses its GPUs unless something uses it before; None if its owner was not warned."""
    reading = resource.Body("reading", type=dict)
    """What its cGPUs do: the newest of its readings."""

    idempotency_key = resource.Header(idempotency.HEADER)
    notes = resource.Computed("notes", type=list)
    """After a launch: the cloud's remarks on the server's fields."""

    def create(self, session: Adapter, *args: Any, **params: Any) -> Self:
        """Claim the cGPUs. If the connection breaks, the request is sent once more: its key prevents a second lease."""
        if self.idempotency_key is None:
            self.idempotency_key = idempotency.new_key()
        create = super().create
        return idempotency.send(lambda: create(session, *args, **params), keystone.ConnectFailure)

    def _translate_response(self, response: requests.Response, *args: Any, **more: Any) -> None:
        super()._translate_response(response, *args, **more)
        document = response.json() if response.content else {}
        if "notes" in document:  # beside the lease, not in it
            self._update(notes=document["notes"])
