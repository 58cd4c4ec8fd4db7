# SPDX-License-Identifier: Apache-2.0
"""Leases: launch, list, show, environment, terminate."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from oslo_db import exception as db_exception
from sqlalchemy import Connection

from gsaas import exceptions
from gsaas.api import idempotency, lease_view, long_polls, microversions, queue, rbac
from gsaas.api import readings as lease_readings
from gsaas.api.launch import launch, wanted_end
from gsaas.api.lease_view import PATH, show_lease
from gsaas.api.request import ApiRequest, ApiResponse
from gsaas.api.schemas import leases as schemas
from gsaas.api.service import ApiService
from gsaas.api.times import iso, parse
from gsaas.cloudinit.environment import shell_exports
from gsaas.db import claims as claim_rows
from gsaas.db import clock, leases
from gsaas.db import readings as stored_readings
from gsaas.db import reservations as reservation_rows
from gsaas.db.database import retried
from gsaas.db.readings import Intervals
from gsaas.gpgpums import lease_end, reservations
from gsaas.gpgpums.lease_end import End
from gsaas.metrics import counted
from gsaas.objects import ids
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status

BY_CHANGE = [("updated_at", False)]
"""The order of leases with `changes-since`: an index has it, so that a page costs as much as it has rows."""
_LAUNCHES = 5
"""Attempts at a launch whose key was in use and is not any more."""


def create(request: ApiRequest) -> ApiResponse:
    """Launch a lease: claim cGPUs, for a VM that is then booted or for a consumer that exists already.

    Everything that can be refused is refused before anything is claimed: first for lack of GPUs, then for the
    project's quota, then by the cloud, which checks the server. A lease without a server that can be used at once is
    returned with its environment. With the Idempotency-Key of an earlier request, the lease of that one is returned.
    """
    lease, notes = _launch_once(request)
    if lease.has_server or lease.status == Status.CLAIMED:
        request.service.engine.lease_changed(request.context, lease.id)
    if lease.queued_at is not None:
        timeout = request.query.get("timeout", 0)
        long_polls.wait_for_change(request, lease.id, Status.QUEUED, timeout)
    if lease.status == Status.ACTIVE and lease.queued_at is None and lease.bound_host is None:
        body: dict[str, Any] = {"lease": show_lease(request, None, lease), "notes": notes}
    else:
        with request.service.database.reading() as connection:
            lease = leases.get(connection, lease.id)
            body = {"lease": show_lease(request, connection, lease), "notes": notes}
    usable = lease.status == Status.ACTIVE
    if usable:
        body["environment"] = lease_view.environment(request.service, lease)
    location = request.link(f"{PATH}/{lease.id}")["href"]
    return ApiResponse(201 if usable else 202, body, {"Location": location})


def _launch_once(request: ApiRequest) -> tuple[Lease, list[str]]:
    """Return the lease of a request and the notes; launch unless a request with the same key has done so.

    That is looked up once a launch is refused, be it for its key: nearly every key is new. It is looked up before only
    if the launch would ask the cloud, which takes longer.
    """
    asks_cloud = request.body["lease"].get("server", {}) is not None
    if asks_cloud and (known := idempotency.launched_before(request)) is not None:
        return known, []
    with counted.refusals():
        for attempt in range(1, _LAUNCHES + 1):
            try:
                lease, notes = launch(request)
                break
            except idempotency.REFUSALS as refusal:
                if (known := idempotency.launched_before(request)) is not None:
                    return known, []
                is_key_free_now = request.idempotency_key is not None and isinstance(
                    refusal, db_exception.DBDuplicateEntry
                )
                if is_key_free_now and attempt < _LAUNCHES:
                    continue  # the lease that had it was so old that it was forgotten
                if isinstance(refusal, exceptions.QuotaExceeded):
                    cgpus = request.body["lease"]["cgpus"]
                    request.service.notifications.quota_exceeded(request.context, refusal, cgpus)
                raise
    if lease.queued_at is None and lease.policy is not None:
        counted.granted(lease.policy)
        if lease.status == Status.ACTIVE:
            counted.launched(lease.timings or {})
    return lease, notes


def index(request: ApiRequest) -> ApiResponse:
    """List leases, oldest first, or first that which has not changed for longest, unless the query names an order."""
    query, project_id, page_size = request.query, request.context.project_id, request.page_size
    if query.get("all_projects"):
        request.authorise(rbac.LEASES_LIST_ALL_PROJECTS)
        project_id = None
    sort, changes_since = request.sort, query.get("changes-since")
    if changes_since is not None and not sort:
        sort = BY_CHANGE
    if any(key in schemas.PLACEMENT_SORT_KEYS for key, _ in sort):
        request.authorise(
            rbac.LEASES_SHOW_PLACEMENT
        )  # the order of the rows tells what is not shown
    marker, after = _position(query.get("marker"), sort)
    filters = {name: query[name] for name in ("server_id", "status", "name") if name in query}
    with request.service.database.reading() as connection:
        found = leases.page(
            connection,
            project_id=project_id,
            limit=page_size + 1,  # one more shows whether there is a next page
            marker=marker,
            after=after,
            changed_since=None if changes_since is None else parse(changes_since, "changes-since"),
            sort=sort,
            **filters,
        )
        found_readings = _newest_readings(request, connection, found[:page_size])
        shown = [
            show_lease(request, connection, lease, found_readings) for lease in found[:page_size]
        ]
    body: dict[str, Any] = {"leases": shown}
    if len(found) > page_size:
        last = shown[-1]
        marker = f"{last['updated_at']}_{last['id']}" if sort == BY_CHANGE else last["id"]
        body["leases_links"] = request.next_page(PATH, marker)
    return ApiResponse(200, body)


def _position(
    marker: str | None, sort: list[tuple[str, bool]]
) -> tuple[str | None, Sequence[Any] | None]:
    """Return the lease that a page begins after, or the values of its row.

    A lease that changes has another place in the order of the changes. So a marker in that order may name the place
    that the lease had when it was listed: `TIME_ID`.
    """
    if marker is None or sort != BY_CHANGE:
        return marker, None
    time, separator, lease_id = marker.rpartition("_")
    if not (separator and ids.is_id(lease_id)):
        return marker, None
    return None, (parse(time, "marker"), lease_id)


def show(request: ApiRequest, lease_id: str) -> ApiResponse:
    """Show a lease and its events; with `while_status`, as soon as it has another status."""
    if (status := request.query.get("while_status")) is not None:
        # The caller's access is checked before the wait, and no transaction stays open during it.
        with request.service.database.reading() as connection:
            find(request, connection, lease_id, rbac.LEASES_SHOW)
        long_polls.wait_for_change(request, lease_id, status, request.query.get("timeout", 0))
    with request.service.database.reading() as connection:
        lease = find(request, connection, lease_id, rbac.LEASES_SHOW)
        shown = show_lease(request, connection, lease)
        shown["events"] = [
            lease_view.show_event(request, event) for event in leases.events(connection, lease_id)
        ]
    return ApiResponse(200, {"lease": shown})


def environment(request: ApiRequest, lease_id: str) -> ApiResponse:
    """Show the environment variables with which programs find the cGPUs of a lease."""
    with request.service.database.reading() as connection:
        lease = find(request, connection, lease_id, rbac.LEASES_ENVIRONMENT)
    if not lease.claims:
        raise exceptions.LeaseHasNoGpus(id=lease_id, status=lease.status)
    variables = lease_view.environment(request.service, lease)
    match request.query.get("format", "json"):
        case "shell":
            return ApiResponse(200, shell_exports(variables))
        case "dotenv":
            return ApiResponse(200, _dotenv(variables))
        case _:
            return ApiResponse(200, {"environment": variables})


def readings(request: ApiRequest, lease_id: str) -> ApiResponse:
    """Show what the cGPUs of a lease did in the last hour and in the last day."""
    with request.service.database.reading() as connection:
        lease = find(request, connection, lease_id, rbac.LEASES_SHOW_READINGS)
        intervals = stored_readings.of_lease(connection, lease_id)
        now = clock.now(connection)
    return ApiResponse(200, {"readings": lease_readings.describe(lease, intervals, now)})


def _newest_readings(
    request: ApiRequest, connection: Connection, found: Collection[Lease]
) -> Mapping[str, Intervals]:
    """Return the newest readings of these leases, read at once."""
    if not request.supports(microversions.READINGS):
        return {}  # the answer would not have them: they need not be read
    return lease_readings.newest(connection, found, clock.now(connection))


def update(request: ApiRequest, lease_id: str) -> ApiResponse:
    """Give a lease another name, end or consent to moves, or another priority while it is in the queue."""
    changes = dict(request.body["lease"])
    if "priority" in changes:
        queue.check_priority(request, changes["priority"])
    with request.service.database.reading() as connection:
        find(request, connection, lease_id, rbac.LEASES_UPDATE)
    end = wanted_end(changes) if changes.keys() & {"duration", "ends_at"} else None
    _change(request.service, lease_id, changes, end)
    if "priority" in changes:
        request.service.claims.queue.advance()  # another request may be the next now
    with request.service.database.reading() as connection:
        shown = show_lease(request, connection, leases.get(connection, lease_id))
    return ApiResponse(200, {"lease": shown})


@retried
def _change(
    service: ApiService, lease_id: str, changes: Mapping[str, Any], end: End | None
) -> None:
    """Write *changes* of a lease, and its new *end* unless that is None.

    Raises `LeaseReleased`, `LeaseNotQueued` for a priority that has no effect, the errors of `lease_end.changed`, and
    `EndReserved`.
    """
    with service.database.writing() as connection:
        lease = leases.lock(connection, lease_id)
        if lease.status == Status.RELEASED:
            raise exceptions.LeaseReleased(id=lease_id)
        if "priority" in changes and lease.status != Status.QUEUED:
            raise exceptions.LeaseNotQueued(id=lease_id, status=lease.status)
        after = lease.with_(
            **{name: changes[name] for name in ("name", "priority", "movable") if name in changes}
        )
        if end is not None:
            after = lease_end.changed(service.end_policy, after, end, clock.now(connection))
            _check_reservations(connection, lease, after)
        if columns := leases.changed_columns(lease, after):
            leases.write(connection, after, *columns)


def _check_reservations(connection: Connection, lease: Lease, after: Lease) -> None:
    """Raise `EndReserved` if GPUs of *lease* are reserved for a time that its end is postponed to."""
    if lease.ends_at is None or not lease.claims:
        return  # it has them all the time already, or has none
    gpus = claim_rows.memory_of(connection, [claim.gpu_uuid for claim in lease.claims])
    start = reservations.first_in_the_way(
        reservation_rows.live(connection), lease, gpus, after.ends_at
    )
    if start is not None:
        raise exceptions.EndReserved(id=lease.id, start=iso(start))


def delete(request: ApiRequest, lease_id: str) -> ApiResponse:
    """Terminate a lease: delete its VM and release its GPUs. Repeating the request has no further effect.

    A lease that has nothing but its claims is RELEASED in the response; the engine terminates any other.
    """

    def may_be_deleted(lease: Lease) -> bool:
        _check_access(request, lease, rbac.LEASES_DELETE)
        return lease.status != Status.RELEASING

    try:
        lease = request.service.claims.terminate(lease_id, if_=may_be_deleted)
    except exceptions.IllegalTransition:
        raise exceptions.LeaseReleased(id=lease_id) from None
    if lease is not None and lease.status == Status.RELEASED:
        return ApiResponse(202, {"lease": show_lease(request, None, lease)})
    request.service.engine.lease_changed(request.context, lease_id)
    with request.service.database.reading() as connection:
        shown = show_lease(request, connection, leases.get(connection, lease_id))
        return ApiResponse(202, {"lease": shown})


def keepalive(request: ApiRequest, lease_id: str) -> ApiResponse:
    """Keep a lease alive: report that its client still uses it."""
    with request.service.database.reading() as connection:
        find(request, connection, lease_id, rbac.LEASES_KEEP)
    lease = request.service.database.change(lambda connection: leases.keep(connection, lease_id))
    if lease.status == Status.RELEASED:
        raise exceptions.LeaseReleased(id=lease_id)
    kept = {"id": lease.id, "status": lease.status, "kept_until": iso(lease.kept_until)}
    return ApiResponse(200, {"lease": kept})


def find(request: ApiRequest, connection: Connection, lease_id: str, rule: str) -> Lease:
    """Return a lease that the caller may see and that *rule* allows it to act on; raises `NotFound` or `Forbidden`."""
    all_projects = request.allows(rbac.LEASES_LIST_ALL_PROJECTS)
    lease = leases.get(connection, lease_id, None if all_projects else request.context.project_id)
    request.authorise(rule, lease_view.target(lease))
    return lease


def _check_access(request: ApiRequest, lease: Lease, rule: str) -> None:
    """Raise what `find` raises, for a lease that has been read already."""
    own = lease.project_id == request.context.project_id
    if not own and not request.allows(rbac.LEASES_LIST_ALL_PROJECTS):
        raise exceptions.NotFound(noun="lease", id=lease.id, foreign=True)
    request.authorise(rule, lease_view.target(lease))


def _dotenv(variables: Mapping[str, str]) -> str:
    """Return *variables* as a .env file. What needs no quotes has none: docker's and podman's --env-file keep them.

    Other values are in double quotes, with a backslash before special characters.
    """

    def quoted(value: str) -> str:
        if re.fullmatch(r"[A-Za-z0-9_./:@%+,=-]*", value):
            return value
        return '"{}"'.format(re.sub(r'([\\"$`])', r"\\\1", value))

    return "".join(f"{name}={quoted(value)}\n" for name, value in variables.items())
