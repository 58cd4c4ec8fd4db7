# SPDX-License-Identifier: Apache-2.0
"""Settings: what an operator may change while the service runs."""

from __future__ import annotations

from gsaas.api.request import ApiRequest, ApiResponse
from gsaas.db import settings
from gsaas.db.database import retried


def show(request: ApiRequest) -> ApiResponse:
    """Show the settings; null means that the configuration applies."""
    with request.service.database.read() as session:
        interval = settings.get(session, settings.MONITOR_INTERVAL)
    return ApiResponse(200, {"settings": {settings.MONITOR_INTERVAL: interval}})


@retried
def update(request: ApiRequest) -> ApiResponse:
    """Change settings, and notify the agents that use them."""
    interval = request.body["settings"][settings.MONITOR_INTERVAL]
    with request.service.database.write() as session:
        settings.put(session, settings.MONITOR_INTERVAL, interval, request.context.user_id)
    request.service.engine.monitor_interval_changed(request.context)
    return show(request)
