"""The queue: who waits for GPUs, and how a client waits along."""

from __future__ import annotations

import datetime
import time
from typing import Any

from oslo_utils import timeutils
from sqlalchemy.orm import Session

from gsaas import exceptions
from gsaas.api import cgpus
from gsaas.api.rbac import leases as rbac
from gsaas.api.service import Call, Reply
from gsaas.api.times import iso
from gsaas.api.watchers import Bell
from gsaas.db import models, queue
from gsaas.db.database import Database
from gsaas.gpgpums.claims import TIME_OVER, WaitPolicy
from gsaas.objects.lifecycle import Status

PATH = "/v1/queue"

HANG_UP_CHECK = 1.0
"""Seconds between two looks whether the client is still connected."""
UNANNOUNCED_CHECK = 0.5
"""Seconds between two looks at a lease in a status whose end nobody announces."""

HUNG_UP = "the client that waited for it went away"


def index(call: Call) -> Reply:
    """List the requests that wait, in the order of their turns: the caller's own, for admins all."""
    everybody = call.allows(rbac.LIST_ALL_PROJECTS)
    project_id = None if everybody else call.context.project_id
    with call.service.database.read() as session:
        order = queue.order(session)
        found = queue.page(
            session, project_id=project_id, limit=call.limit + 1, marker=call.query.get("marker")
        )
        own = queue.length(session, call.context.project_id)
    shown = [_place(call, lease, order[lease.id]) for lease in found[: call.limit]]
    body: dict[str, Any] = {"totals": {"length": len(order), "own": own}, "places": shown}
    if len(found) > call.limit:
        body["places_links"] = call.next_page(PATH, shown[-1]["lease_id"])
    return Reply(200, body)


def describe(call: Call, session: Session, lease: models.Lease) -> dict[str, Any] | None:
    """Return where a lease stands in the queue; None if it is not in it."""
    place = queue.place(session, lease) if lease.status == Status.QUEUED else None
    return place and {
        "position": place.position,
        "length": place.length,
        "estimate_seconds": call.service.estimates.seconds(place.position),
    }


def patience(call: Call, asked: dict[str, Any]) -> WaitPolicy | None:
    """Return how the request is to wait; None if it is not. *asked* has passed its schema.

    Raises `BadRequest` for what makes sense only while waiting, and for a priority out of bounds;
    `Forbidden` for one that the caller may not name.
    """
    _check_priority(call, asked.get("priority", 0))
    if "wait" not in asked:
        if asked.get("attended"):
            raise exceptions.BadRequest(
                reason="lease.attended is about a request that waits: say for how long in lease.wait"
            )
        return None
    seconds = asked["wait"]
    until = None
    if seconds is not None:
        until = timeutils.utcnow() + datetime.timedelta(seconds=seconds)
    return WaitPolicy(until, asked.get("attended", False), call.service.conf.queue.most_per_project)


def _check_priority(call: Call, priority: int) -> None:
    options = call.service.conf.queue
    if not options.lowest_priority <= priority <= options.highest_priority:
        raise exceptions.BadRequest(
            reason=f"lease.priority is {priority}; here it may be {options.lowest_priority} to "
            f"{options.highest_priority}"
        )
    if priority > 0:
        call.authorise(rbac.PRIORITISE)


def await_change(call: Call, lease_id: str, status: str, seconds: float) -> None:
    """Return as soon as the lease has another status than *status*, or after so many seconds.

    It is also how a client shows that it is still there, if it promised to: one that hangs up
    meanwhile, or whose time is over, gives its place back here.
    """
    service = call.service
    with service.watchers.watching(lease_id) as bell:
        end = time.monotonic() + (0 if bell is None else seconds)
        look = _look(service.database, lease_id)
        attends = look.seen_at is not None and look.user_id == call.context.user_id
        if bell is not None:
            bell.attends = attends
        while look.status == status:
            if status == Status.QUEUED:
                if look.wait_until is not None and look.wait_until <= look.at:
                    service.claims.leave(lease_id, TIME_OVER)
                    return
                if attends:
                    _show_presence(call, lease_id, look)
            left = end - time.monotonic()
            if left <= 0:
                return
            if not _ring(call, bell, min(left, _pause(call, look))):
                break
            bell.clear()
            look = _look(service.database, lease_id)
    if look.status == Status.CLAIMED and status == Status.QUEUED:
        # Whoever makes the server does it with a token, and this one is the newest.
        service.engine.lease_changed(call.context, lease_id)
    if attends and call.gone():
        give_up(call, lease_id)
    elif attends and look.status != Status.QUEUED:
        note_answer(call, lease_id)


def note_answer(call: Call, lease_id: str) -> None:
    """Note that the client of a lease knows what became of its wait."""
    if _look(call.service.database, lease_id).seen_at is not None:
        with call.service.database.write() as session:
            queue.answered(session, lease_id)


def give_up(call: Call, lease_id: str) -> None:
    """End a lease whose client has gone before it knew that it had it."""
    if not call.service.claims.leave(lease_id, HUNG_UP) and call.service.claims.desert(
        lease_id, HUNG_UP
    ):
        call.service.engine.lease_changed(call.context, lease_id)


def _ring(call: Call, bell: Bell, seconds: float) -> bool:
    """Wait for the bell; False if the client hangs up first."""
    end = time.monotonic() + seconds
    while not call.gone():
        left = end - time.monotonic()
        if left <= 0 or bell.wait(min(left, HANG_UP_CHECK)):
            return not call.gone()
    return False


def _pause(call: Call, look: queue.Look) -> float:
    """Seconds until the next look at the lease, unless the bell rings."""
    if look.status != Status.QUEUED:
        return UNANNOUNCED_CHECK
    pause = call.service.conf.queue.recheck_interval
    if look.wait_until is not None:
        pause = min(pause, (look.wait_until - look.at).total_seconds())
    return pause


def _show_presence(call: Call, lease_id: str, look: queue.Look) -> None:
    """Note that the client is there, often enough for it not to be taken for gone."""
    silent = (look.at - look.seen_at).total_seconds()
    if silent > call.service.conf.queue.client_timeout / 4:
        with call.service.database.write() as session:
            queue.heard(session, lease_id)


def _look(database: Database, lease_id: str) -> queue.Look:
    with database.reading() as connection:
        return queue.look(connection, lease_id)


def _place(call: Call, lease: models.Lease, position: int) -> dict[str, Any]:
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
        "estimate_seconds": call.service.estimates.seconds(position),
        "cgpus": cgpus.describe(lease),
    }
