# SPDX-License-Identifier: Apache-2.0
"""Reservations: create, list, show, rename, cancel. Nobody learns from them which GPUs they are on."""

from __future__ import annotations

import dataclasses
import datetime
import uuid
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from gsaas import exceptions
from gsaas.api import cgpus, degraded, rbac
from gsaas.api.request import ApiRequest, ApiResponse
from gsaas.api.times import iso, parse, said
from gsaas.db import clock, reservations
from gsaas.limits import base as limits
from gsaas.objects.device_kinds import CUDA
from gsaas.objects.reservation import LIVE, Horizon, Reservation, ReservationStatus

PATH = "/v1/reservations"
CLOCK_TOLERANCE = datetime.timedelta(minutes=1)
"""How far in the past a beginning may be, because the clocks of callers differ, and requests take time."""


def create(request: ApiRequest) -> ApiResponse:
    """Reserve cGPUs from a time to another one, if they fit beside the reservations that overlap it."""
    service, body = request.service, request.body["reservation"]
    wanted = cgpus.parse(service, body["cgpus"])
    now = service.database.now()
    start = _start(body["start"], now) if "start" in body else now
    end = parse(body["end"], "reservation.end")
    if end <= start:
        raise exceptions.BadRequest(
            reason=f"the reservation would end at {said(end)}, before it begins at {said(start)}"
        )
    quotas = service.conf.quotas
    horizon = Horizon.of_days(quotas.reservation_days, quotas.reservation_days_ahead)
    if (beyond := horizon.exceeded(start, end, now)) is not None:
        row = {"name": beyond.option, "used": 0, "asked": beyond.asked, "limit": beyond.limit}
        raise exceptions.QuotaExceeded(
            reason=f"no reservation from {said(start)} to {said(end)} is possible here: {beyond}",
            details={"quotas": [row]},
        )
    quota = service.limits.of(request.project_id)
    limits.check(quota, limits.NOTHING, limits.at_least(wanted))
    reservation_id = str(uuid.uuid4())
    created = service.claims.reservations.create(
        Reservation(
            id=reservation_id,
            project_id=request.project_id,
            user_id=request.context.user_id or "",
            name=body.get("name", f"reservation-{reservation_id[:8]}"),
            status=ReservationStatus.PENDING,
            cgpus=wanted.to_dict() | wanted.stored_requirements(),
            start=start,
            end=end,
            created_at=now,
        ),
        wanted,
        at_most=quotas.reservations,
        quota=quota,
    )
    location = request.link(f"{PATH}/{reservation_id}")["href"]
    return ApiResponse(201, _one(request, created), {"Location": location})


def index(request: ApiRequest) -> ApiResponse:
    """List reservations, the earliest first unless the query names another order."""
    query, project_id, page_size = request.query, request.context.project_id, request.page_size
    if query.get("all_projects"):
        request.authorise(rbac.RESERVATIONS_LIST_ALL_PROJECTS)
        project_id = None
    statuses = [query["status"]] if "status" in query else LIVE
    with request.service.database.reading() as connection:
        found = reservations.page(
            connection,
            project_id=project_id,
            statuses=statuses,
            limit=page_size + 1,  # one more shows whether there is a next page
            marker=query.get("marker"),
            sort=request.sort,
        )
        shown = _shown(request, connection, found[:page_size])
    body: dict[str, Any] = {"reservations": shown}
    if len(found) > page_size:
        body["reservations_links"] = request.next_page(PATH, shown[-1]["id"])
    return ApiResponse(200, body)


def show(request: ApiRequest, reservation_id: str) -> ApiResponse:
    """Show a reservation."""
    with request.service.database.reading() as connection:
        found = _find(request, connection, reservation_id, rbac.RESERVATIONS_LIST)
    return ApiResponse(200, _one(request, found))


def update(request: ApiRequest, reservation_id: str) -> ApiResponse:
    """Give a reservation another name."""
    service, change = request.service, request.body["reservation"]
    with service.database.reading() as connection:
        found = _find(request, connection, reservation_id, rbac.RESERVATIONS_UPDATE)
    if "name" in change:
        service.database.change(
            lambda connection: reservations.rename(connection, reservation_id, change["name"])
        )
        found = dataclasses.replace(found, name=change["name"])
    return ApiResponse(200, _one(request, found))


def delete(request: ApiRequest, reservation_id: str) -> ApiResponse:
    """Cancel a reservation. The leases that were launched in it go on; one that is over stays as it is."""
    with request.service.database.reading() as connection:
        _find(request, connection, reservation_id, rbac.RESERVATIONS_DELETE)
    found = request.service.claims.reservations.cancel(reservation_id)
    return ApiResponse(200, _one(request, found))


def _start(text: str, now: datetime.datetime) -> datetime.datetime:
    """Return when a reservation begins that is to begin at *text*. Raises `BadRequest` for a time in the past."""
    start = parse(text, "reservation.start")
    if start < now - CLOCK_TOLERANCE:
        raise exceptions.BadRequest(
            reason=f'reservation.start is "{text}", which is in the past: it is {said(now)} now; leave it out to begin '
            "now"
        )
    return max(now, start)


def _find(
    request: ApiRequest, connection: Connection, reservation_id: str, rule: str
) -> Reservation:
    """Return a reservation that the caller may see and that *rule* allows it to act on.

    Raises `NotFound` or `Forbidden`.
    """
    all_projects = request.allows(rbac.RESERVATIONS_LIST_ALL_PROJECTS)
    project_id = None if all_projects else request.context.project_id
    found = reservations.get(connection, reservation_id, project_id)
    request.authorise(rule, {"project_id": found.project_id, "user_id": found.user_id})
    return found


def _one(request: ApiRequest, reservation: Reservation) -> dict[str, Any]:
    with request.service.database.reading() as connection:
        [shown] = _shown(request, connection, [reservation])
    return {"reservation": shown}


def _shown(
    request: ApiRequest, connection: Connection, found: Sequence[Reservation]
) -> list[dict[str, Any]]:
    gpus = reservations.gpus_of(connection, found)
    timeout, now = request.service.conf.gpgpums.heartbeat_timeout, clock.now(connection)
    return [
        {
            "id": one.id,
            "name": one.name,
            "status": one.status,
            "project_id": one.project_id,
            "user_id": one.user_id,
            "created_at": iso(one.created_at),
            "start": iso(one.start),
            "end": iso(one.end),
            "cgpus": {"kind": CUDA, **cgpus.asked_for(one.cgpus)},
            "kept": sum(share.kept for share in one.shares),
            "lease_ids": sorted({share.lease_id for share in one.shares if share.lease_id}),
            **_degraded(request, one, degraded.reasons_of_reservation(one, gpus, timeout, now)),
            "links": [request.link(f"{PATH}/{one.id}")],
        }
        for one in found
    ]


def _degraded(request: ApiRequest, one: Reservation, reasons: list[str]) -> dict[str, Any]:
    """Return whether a reservation is degraded, and why if the caller may see GPUs and hosts."""
    owner = {"project_id": one.project_id, "user_id": one.user_id}
    why = {"degraded_reasons": reasons} if request.allows(rbac.LEASES_SHOW_PLACEMENT, owner) else {}
    return {"degraded": bool(reasons), **why}
