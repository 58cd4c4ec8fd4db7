"""Metrics for Prometheus, which has no token."""

from __future__ import annotations

from gsaas.api.service import Call, Reply
from gsaas.db import metrics
from gsaas.metrics import exposition, stored


def show(call: Call) -> Reply:
    """Tell how things are, and what this API did since it started, in Prometheus' text format."""
    service = call.service
    with service.database.read() as session:
        state = metrics.state(session, service.conf.gpgpums.heartbeat_timeout)
        gpus = metrics.each_gpu(session) if service.conf.api.metrics_gpus else []
    text = exposition.text([*stored.gauges(state), *stored.each_gpu(gpus)])
    return Reply(200, text, {"Content-Type": exposition.CONTENT_TYPE})
