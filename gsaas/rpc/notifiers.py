# SPDX-License-Identifier: Apache-2.0
"""oslo.messaging's notifiers, as `[oslo_messaging_notifications]` and `[notifications]` configure them.

Making one connects to nothing. `gsaas.notifications` decides what is sent with them.
"""

from __future__ import annotations

import socket
from typing import Any, NamedTuple

from oslo_config import cfg

from gsaas import rpc

SECTION = "oslo_messaging_notifications"


class Notifiers(NamedTuple):
    """The notifiers of a process; each is None if nothing of its kind is to be sent."""

    versioned: Any
    audit: Any


def connect(conf: cfg.ConfigOpts, service: str, url: str | None = None) -> Notifiers:
    """Return the notifiers of a *service*, such as `gsaas-api`; its host is the second part of the publisher's id.

    *url* names the bus if the configuration has none for notifications. Without `[oslo_messaging_notifications]driver`,
    or with `noop` alone, nothing is sent.
    """
    transport = rpc.notification_transport(conf, url)
    if set(conf[SECTION].driver) <= {"noop", ""}:
        return Notifiers(None, None)
    options = conf.notifications
    publisher = f"{service}:{conf.host or socket.gethostname()}"
    versioned = rpc.Notifier(transport, publisher, topics=options.topics)
    audit = rpc.Notifier(transport, publisher, topics=options.audit_topics)
    return Notifiers(versioned, audit if options.audit else None)
