# SPDX-License-Identifier: Apache-2.0
"""Leases."""

from __future__ import annotations

from typing import Any, Self

import requests
from keystoneauth1 import exceptions as keystone
from keystoneauth1.adapter import Adapter
from openstack import resource

from gsaasclient import idempotency, lease_fields
from gsaasclient.sdk.base import Resource

ENDED = ("ERROR", "RELEASING", "RELEASED")
"""Statuses from which a lease does not become ACTIVE."""


def _with_fields(cls: type[Lease]) -> type[Lease]:
    """Return *cls* with an attribute for each member of a lease, as `lease_fields` describes them."""
    for member in lease_fields.OBJECTS:
        setattr(cls, member, resource.Body(member, type=dict))
    for field in lease_fields.FIELDS:
        if len(field.path) == 1 and field.name not in ("id", "name"):  # which every resource has
            setattr(cls, field.attribute, resource.Body(field.name, type=field.kind))
    return cls


@_with_fields
class Lease(Resource):
    """cGPUs, with a VM or for an existing consumer.

    The attributes are the API's fields of the same names, which `gsaasclient.lease_fields` lists; `is_degraded` is
    `degraded`. In a request, `server` has Nova's fields of a server, or is None for a lease without a VM.
    """

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

    wait = resource.Body("wait", type=int)
    """Of a request: seconds to wait in the queue; None for no limit."""
    is_attended = resource.Body("attended", type=bool)
    """Of a request: whether it leaves the queue when its client stops to ask with `while_status`."""
    keepalive = resource.Body("keepalive", type=int)
    """Of a request: seconds after which the lease ends if nobody has kept it alive."""

    idempotency_key = resource.Header(idempotency.HEADER)
    notes = resource.Computed("notes", type=list)
    """After a launch: remarks on the server's fields."""

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
