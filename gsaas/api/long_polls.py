# SPDX-License-Identifier: Apache-2.0
"""Long polls: requests that are answered as soon as a lease changes its status."""

from __future__ import annotations

import time

from gsaas.api.request import ApiRequest
from gsaas.api.subscriptions import LeaseSubscription
from gsaas.db import queue
from gsaas.db.database import Database
from gsaas.gpgpums.queue_manager import TIME_OVER
from gsaas.objects.lifecycle import Status

DISCONNECT_CHECK_INTERVAL = 1.0
"""Seconds between two checks whether the client is still connected."""
STATUS_CHECK_INTERVAL = 0.5
"""Seconds between two reads of a lease whose next change of status is not announced: one that is not in the queue."""

CLIENT_DISCONNECTED = "the client that waited for it disconnected"


def wait_for_change(request: ApiRequest, lease_id: str, status: str, seconds: float) -> None:
    """Return as soon as the lease has another status than *status*, or after *seconds*.

    For the client of an attended lease the call also has side effects. While it waits, the database records that the
    client is present. If the client disconnects, the lease leaves the queue, or is released if it has GPUs by then. But
    a client that launched with an Idempotency-Key may repeat its request in any process: its lease ends only when no
    request of the client was open for `[queue]client_timeout` (`Claims.run_audit`). A lease whose time in the queue is
    over leaves the queue, whichever client waits for it.
    """
    service = request.service
    with service.subscriptions.subscribe(lease_id) as subscription:
        deadline = time.monotonic() + seconds
        # The subscription comes before the first read: a change between the two is then announced.
        lease = _read(service.database, lease_id)
        attended = lease.seen_at is not None and lease.user_id == request.context.user_id
        if subscription is not None:
            subscription.is_attended = attended
        while lease.status == status:
            if status == Status.QUEUED:
                if lease.wait_until is not None and lease.wait_until <= lease.at:
                    service.claims.queue.leave(lease_id, TIME_OVER)
                    return
                if attended:
                    _record_presence(request, lease_id, lease)
            left = deadline - time.monotonic()
            if left <= 0 or subscription is None:  # too many long polls: answer at once
                return
            if not _wait(request, subscription, min(left, _recheck_interval(request, lease))):
                break
            # Cleared before the read, so that a change during the read is not missed.
            subscription.clear()
            lease = _read(service.database, lease_id)
    if lease.status == Status.CLAIMED and status == Status.QUEUED:
        # The engine creates the server with a caller's token; this caller's token is the newest.
        service.engine.lease_changed(request.context, lease_id)
    if attended and request.connection.is_disconnected():
        if not lease.is_repeatable and not service.subscriptions.is_client_waiting(lease_id):
            _abandon(request, lease_id)
    elif attended and lease.status != Status.QUEUED:
        _record_answer(request, lease_id)


def _record_answer(request: ApiRequest, lease_id: str) -> None:
    """Record that the client of an attended lease has the result of its wait, and need not be watched any more."""
    if _read(request.service.database, lease_id).seen_at is not None:
        request.service.database.change(
            lambda connection: queue.note_client_informed(connection, lease_id)
        )


def _abandon(request: ApiRequest, lease_id: str) -> None:
    """End a lease whose client disconnected before it received the result of its wait."""
    claims = request.service.claims
    left_queue = claims.queue.leave(lease_id, CLIENT_DISCONNECTED)
    if not left_queue and claims.abandon(lease_id, CLIENT_DISCONNECTED):
        request.service.engine.lease_changed(request.context, lease_id)


def _wait(request: ApiRequest, subscription: LeaseSubscription, seconds: float) -> bool:
    """Return True once the lease changes or after *seconds*; False as soon as the client is disconnected."""
    deadline = time.monotonic() + seconds
    while not request.connection.is_disconnected():
        left = deadline - time.monotonic()
        if left <= 0 or subscription.wait(min(left, DISCONNECT_CHECK_INTERVAL)):
            return not request.connection.is_disconnected()
    return False


def _recheck_interval(request: ApiRequest, lease: queue.WaitState) -> float:
    """Return the seconds until the lease is read again without a notification.

    Notifications of other processes may be lost, so the lease is read now and then in any case.
    """
    if lease.status != Status.QUEUED:
        return STATUS_CHECK_INTERVAL
    interval: float = request.service.conf.queue.recheck_interval
    if lease.wait_until is not None:
        interval = min(interval, (lease.wait_until - lease.at).total_seconds())
    return interval


def _record_presence(request: ApiRequest, lease_id: str, lease: queue.WaitState) -> None:
    """Record that the client is present, four times as often as `[queue]client_timeout` requires."""
    if lease.seen_at is None:
        return
    silent = (lease.at - lease.seen_at).total_seconds()
    if silent > request.service.conf.queue.client_timeout / 4:
        request.service.database.change(
            lambda connection: queue.note_client_polled(connection, lease_id)
        )


def _read(database: Database, lease_id: str) -> queue.WaitState:
    with database.reading() as connection:
        return queue.wait_state(connection, lease_id)
