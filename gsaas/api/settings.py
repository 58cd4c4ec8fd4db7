"""What an operator may change while the service runs."""

from __future__ import annotations

from gsaas.api.service import Call, Reply
from gsaas.db import settings
from gsaas.db.database import retried


def show(call: Call) -> Reply:
    """Tell what was changed, and what is still as the configuration says."""
    with call.service.database.read() as session:
        interval = settings.get(session, settings.MONITOR_INTERVAL)
    return Reply(200, {"settings": {settings.MONITOR_INTERVAL: interval}})


@retried
def update(call: Call) -> Reply:
    """Change what is named, and tell those whom it concerns."""
    interval = call.body["settings"][settings.MONITOR_INTERVAL]
    with call.service.database.write() as session:
        settings.put(session, settings.MONITOR_INTERVAL, interval, call.context.user_id)
    call.service.engine.monitor_interval_changed(call.context)
    return show(call)
