# SPDX-License-Identifier: Apache-2.0
"""The queue of requests that wait for GPUs: its list, the place of a lease in it, and how a request waits."""

from __future__ import annotations

import datetime
from typing import Any

from sqlalchemy import Connection

from gsaas import exceptions
from gsaas.api import cgpus, rbac
from gsaas.api.request import ApiRequest, ApiResponse
from gsaas.api.times import iso
from gsaas.db import clock, queue
from gsaas.gpgpums.changes import WaitPolicy
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status

PATH = "/v1/queue"


def index(request: ApiRequest) -> ApiResponse:
    """List the waiting requests in the order of the queue: the caller's project's, or all of them for admins."""
    all_projects = request.allows(rbac.LEASES_LIST_ALL_PROJECTS)
    project_id = None if all_projects else request.project_id
    page_size = request.page_size
    with request.service.database.reading() as connection:
        positions = queue.positions(connection)
        # One more than a page shows whether there is a next page.
        found = queue.page(
            connection,
            project_id=project_id,
            limit=page_size + 1,
            marker=request.query.get("marker"),
            sort=request.sort,
        )
        own = queue.length(connection, request.project_id)
    places = [_place(request, lease, positions[lease.id]) for lease in found[:page_size]]
    body: dict[str, Any] = {"totals": {"length": len(positions), "own": own}, "places": places}
    if len(found) > page_size:
        body["places_links"] = request.next_page(PATH, places[-1]["lease_id"])
    return ApiResponse(200, body)


def describe(
    request: ApiRequest, connection: Connection | None, lease: Lease
) -> dict[str, Any] | None:
    """Return a lease's position, the length of the queue and the estimated wait; None if it is not in the queue.

    *connection* may be None for a lease that is not QUEUED.
    """
    if connection is None or lease.status != Status.QUEUED:
        return None
    place = queue.place(connection, lease)
    return place and {
        "position": place.position,
        "length": place.length,
        "estimate_seconds": request.service.estimates.seconds(place.position, lease.id),
    }


def with_estimate(request: ApiRequest, error: exceptions.GsaasError) -> exceptions.GsaasError:
    """Return *error*, with how long the request would wait if it joined the queue now, where that is known."""
    details = error.facts.get("details")
    if details is not None:
        with request.service.database.reading() as connection:
            position = queue.length(connection) + 1
        if (seconds := request.service.estimates.seconds(position)) is not None:
            details["estimate_seconds"] = seconds
    return error


def wait_policy(request: ApiRequest, body: dict[str, Any]) -> WaitPolicy | None:
    """Return how the launch in *body*, which has passed its schema, is to wait for GPUs; None if it is not to wait.

    Raises `BadRequest` for `attended` without `wait` and for a priority out of bounds; `Forbidden` for a priority that
    the caller may not use.
    """
    check_priority(request, body.get("priority", 0))
    if "wait" not in body:
        if body.get("attended"):
            raise exceptions.BadRequest(
                reason="lease.attended applies only to a request that waits: set lease.wait to the "
                "number of seconds to wait"
            )
        return None
    seconds = body["wait"]
    until = None
    if seconds is not None:
        with request.service.database.reading() as connection:
            until = clock.now(connection) + datetime.timedelta(seconds=seconds)
    attended = body.get("attended", False)
    options = request.service.conf.queue
    return WaitPolicy(until, attended, options.most_per_project, options.most_kb_per_project)


def check_priority(request: ApiRequest, priority: int) -> None:
    """Raise `BadRequest` for a priority out of bounds, and `Forbidden` for one that the caller may not use."""
    options = request.service.conf.queue
    if not options.lowest_priority <= priority <= options.highest_priority:
        raise exceptions.BadRequest(
            reason=f"lease.priority is {priority}; it must be from {options.lowest_priority} to "
            f"{options.highest_priority}"
        )
    if priority > 0:
        request.authorise(rbac.LEASES_PRIORITISE)


def _place(request: ApiRequest, lease: Lease, position: int) -> dict[str, Any]:
    return {
        "position": position,
        "lease_id": lease.id,
        "name": lease.name,
        "project_id": lease.project_id,
        "user_id": lease.user_id,
        "priority": lease.priority,
        "queued_at": iso(lease.queued_at),
        "wait_until": iso(lease.wait_until),
        "attended": lease.waiter_seen_at is not None,
        "estimate_seconds": request.service.estimates.seconds(position, lease.id),
        "cgpus": cgpus.describe(lease),
    }
