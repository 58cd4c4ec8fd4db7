# SPDX-License-Identifier: Apache-2.0
"""Emits notifications: from what transactions have changed, from refusals, and from security events."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from oslo_config import cfg

from gsaas import exceptions
from gsaas.context import RequestContext
from gsaas.db import changes, leases, reservations
from gsaas.db.database import Database
from gsaas.metrics import counted
from gsaas.notifications import cadf, events, payloads
from gsaas.notifications.cadf import SecurityEvent
from gsaas.notifications.outbox import Outbox
from gsaas.objects.rate import RateLimit


class Notifier(Protocol):
    """The part of oslo.messaging's notifier that is used here."""

    publisher_id: str

    def info(self, ctxt: Any, event_type: str, payload: Any) -> None: ...
    def warn(self, ctxt: Any, event_type: str, payload: Any) -> None: ...
    def error(self, ctxt: Any, event_type: str, payload: Any) -> None: ...


class Notifications:
    """The notifications of a process. Safe to share between threads; no method blocks or raises.

    *versioned* sends the notifications of leases, reservations, GPUs and quotas, *audit* security events; each may be
    None, and then nothing of its kind is sent. Nothing connects to the bus before the first notification.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        database: Database,
        versioned: Notifier | None = None,
        audit: Notifier | None = None,
    ) -> None:
        options = conf.notifications
        self._database = database
        self._versioned = versioned
        self._audit = audit
        self._outbox = Outbox(options.buffer)
        self._rate = RateLimit(options.audit_per_source, options.audit_total)
        self._rate_lock = threading.Lock()
        if self._versioned is not None:
            database.on_commit = self.committed

    @property
    def audits(self) -> bool:
        """Whether security events are sent."""
        return self._audit is not None

    def committed(self, happened: Sequence[changes.Change]) -> None:
        """Notify of what a transaction has changed: `Database.on_commit`."""
        self._outbox.put(functools.partial(self._send_changes, tuple(happened)))

    def quota_exceeded(
        self, context: RequestContext, refusal: exceptions.QuotaExceeded, cgpus: dict[str, Any]
    ) -> None:
        """Notify of a launch that a quota refused; *cgpus* is what it asked for."""
        if self._versioned is None:
            return
        payload = payloads.quota(
            project_id=context.project_id or "",
            user_id=context.user_id or "",
            request_id=context.request_id,
            reason=str(refusal),
            cgpus=cgpus,
        )
        self._outbox.put(functools.partial(_send, self._versioned, events.QUOTA_EXCEEDED, payload))

    def audit(self, happened: SecurityEvent) -> None:
        """Notify of a security event, unless its source has caused too many; successes always pass."""
        if self._audit is None:
            return
        if not happened.succeeded:
            with self._rate_lock:
                passes = self._rate.allows(happened.address or cadf.UNKNOWN, time.monotonic())
            if not passes:
                counted.notification_dropped("rate")
                return
        self._outbox.put(functools.partial(_send_audit, self._audit, happened))

    def close(self, timeout: float = 2.0) -> None:
        """Send what waits, for up to *timeout* seconds."""
        self._outbox.close(timeout)

    def _send_changes(self, happened: Sequence[changes.Change]) -> None:
        assert self._versioned is not None  # noqa: S101  (`committed` is called only then)
        for change in happened:
            if isinstance(change, changes.GpuChange):
                _send(self._versioned, *_about_gpu(change))
            elif isinstance(change, changes.ReservationChange):
                _send(self._versioned, *self._about_reservation(change))
            else:
                for event_type, payload in self._about_lease(change):
                    _send(self._versioned, event_type, payload)

    def _about_lease(self, change: changes.LeaseChange) -> list[tuple[str, dict[str, Any]]]:
        """Return the types and payloads of the notifications about an event of a lease."""
        if not events.of_lease(change.event, waited=False):
            return []
        with self._database.reading() as connection:
            lease = leases.get(connection, change.lease_id)
        payload = payloads.lease(lease, change.status, change.at)
        waited = lease.queued_at is not None
        return [
            (event_type, payload) for event_type in events.of_lease(change.event, waited=waited)
        ]

    def _about_reservation(self, change: changes.ReservationChange) -> tuple[str, dict[str, Any]]:
        with self._database.reading() as connection:
            one = reservations.get(connection, change.reservation_id)
            gpus = reservations.gpus_of(connection, [one])
        hosts = {uuid: gpu.host for uuid, gpu in gpus.items()}
        return events.OF_RESERVATION[change.event], payloads.reservation(
            one, change.status, change.at, change.moved_from, hosts
        )


def _about_gpu(change: changes.GpuChange) -> tuple[str, dict[str, Any]]:
    returned = change.withdrawn_reason is None
    return events.GPU_RETURNED if returned else events.GPU_WITHDRAWN, payloads.gpu(
        uuid=change.uuid,
        host=change.host,
        model=change.model,
        memory_mb=change.memory_mb,
        reason=change.withdrawn_reason,
        awaits_operator=change.awaits_operator,
        at=change.at,
    )


def _send(notifier: Notifier, event_type: str, payload: dict[str, Any]) -> None:
    send: Callable[..., None] = getattr(notifier, events.PRIORITIES[event_type])
    send({}, event_type, payload)


def _send_audit(notifier: Notifier, happened: SecurityEvent) -> None:
    notifier.info({}, happened.event_type, cadf.payload(happened, notifier.publisher_id))
