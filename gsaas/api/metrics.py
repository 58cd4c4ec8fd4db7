# SPDX-License-Identifier: Apache-2.0
"""Metrics for Prometheus, without a token."""

from __future__ import annotations

from gsaas.api.request import ApiRequest, ApiResponse
from gsaas.db import metrics
from gsaas.metrics import exposition, stored


def show(request: ApiRequest) -> ApiResponse:
    """Show the state of the service, and what this process has counted since its start, in Prometheus' text format."""
    service = request.service
    with service.database.read() as session:
        state = metrics.state(session, service.conf.gpgpums.heartbeat_timeout)
        gpus = metrics.each_gpu(session) if service.conf.api.metrics_gpus else []
    text = exposition.text([*stored.gauges(state), *stored.each_gpu(gpus)])
    return ApiResponse(200, text, {"Content-Type": exposition.CONTENT_TYPE})
