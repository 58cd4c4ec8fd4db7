"""What Nova tells everybody about servers, turned into wake-ups.

A notification says only that something happened; what is there now, the engine asks Nova. So none has to be
understood, none has to arrive, and a forged one does no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oslo_config import cfg

from gsaas import rpc
from gsaas.cloud import marks
from gsaas.cloud.base import Trace

LOG = logging.getLogger(__name__)

Heard = Callable[[Sequence[Trace]], None]


def listener(conf: cfg.ConfigOpts, heard: Heard) -> Any:
    """A listener to Nova's versioned notifications, to be started and stopped; *heard* is called in its threads."""
    options = conf.nova
    targets = [
        # With a pool, the exchange has to be named: the default would be our own.
        rpc.Target(exchange=options.notification_exchange, topic=topic)
        for topic in options.notification_topics
    ]
    return rpc.listener(
        conf, options.notification_url, targets, options.notification_pool, _Ear(heard)
    )


def trace(event: str, payload: Mapping[str, Any]) -> Trace | None:
    """The server that a versioned notification is about; None if it is about something else."""
    if not event.startswith("instance."):
        return None
    data = payload.get("nova_object.data", {})
    server_id = data.get("uuid")
    if not isinstance(server_id, str):
        return None
    return Trace(server_id, marks.lease_of(data.get("tags") or ()))


class _Ear:
    """Hears of successes and of failures alike."""

    def __init__(self, heard: Heard) -> None:
        self._heard = heard

    def info(
        self, context: Any, publisher: str, event: str, payload: Mapping[str, Any], meta: Any
    ) -> None:
        found = trace(event, payload)
        if found is None:
            return
        try:
            self._heard([found])
        except Exception:  # the watch over servers finds out later
            LOG.exception("%s of server %s was lost", event, found.server_id)

    error = info
