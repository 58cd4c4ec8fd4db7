# SPDX-License-Identifier: Apache-2.0
"""Listens to Nova's notifications about servers, so that the engine reconciles their leases at once.

A notification says only that something happened to a server, and whether the server has properties of GSaaS; the
engine then asks Nova for its state. So no notification has to arrive, and a forged one does no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oslo_config import cfg

from gsaas import rpc
from gsaas.cloud import server_tags
from gsaas.cloud.base import ServerChange
from gsaas.objects import plain_server

LOG = logging.getLogger(__name__)

OnChanges = Callable[[Sequence[ServerChange]], None]


def listener(conf: cfg.ConfigOpts, on_changes: OnChanges) -> Any:
    """Return a listener to Nova's versioned notifications, to be started and stopped.

    It calls *on_changes*, in threads of its own, with the servers that something happened to.
    """
    options = conf.nova
    targets = [
        # With a pool, the exchange has to be named: the default would be that of GSaaS.
        rpc.Target(exchange=options.notification_exchange, topic=topic)
        for topic in options.notification_topics
    ]
    endpoint = _NotificationEndpoint(on_changes)
    return rpc.listener(
        conf, options.notification_url, targets, options.notification_pool, endpoint
    )


def server_change(event: str, payload: Mapping[str, Any]) -> ServerChange | None:
    """Return the server that a versioned notification is about; None if it is about something else."""
    if not event.startswith("instance."):
        return None
    data = payload.get("nova_object.data", {})
    server_id = data.get("uuid")
    if not isinstance(server_id, str):
        return None
    flavor = (data.get("flavor") or {}).get("nova_object.data") or {}
    asks = plain_server.asks(flavor.get("extra_specs") or {}, data.get("metadata") or {})
    return ServerChange(server_id, server_tags.lease_of(data.get("tags") or ()), asks)


class _NotificationEndpoint:
    """An endpoint of oslo.messaging for notifications of priority `info` and `error`, handled alike."""

    def __init__(self, on_changes: OnChanges) -> None:
        self._on_changes = on_changes

    def info(
        self, context: Any, publisher: str, event: str, payload: Mapping[str, Any], meta: Any
    ) -> None:
        found = server_change(event, payload)
        if found is None:
            return
        try:
            self._on_changes([found])
        except Exception:  # the engine also polls for changes of servers, and finds this one later
            LOG.exception(
                "notification %s of server %s could not be handled", event, found.server_id
            )

    error = info
