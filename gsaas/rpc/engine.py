"""What agents and the API ask of the engine."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gsaas import rpc
from gsaas.context import RequestContext
from gsaas.db.gpus import GpuInfo
from gsaas.rodvr.bindings import Binding

LOG = logging.getLogger(__name__)


class EngineClient:
    """Calls to the engine, by version:

    1.0  lease_changed, endpoint_started, endpoint_report, gpus_report
    """

    VERSION = "1.0"

    def __init__(self, bus: rpc.Bus) -> None:
        self._client = rpc.Client(bus, rpc.ENGINE, self.VERSION)

    def lease_changed(self, context: RequestContext, lease_id: str) -> None:
        """Ask the engine to look at a lease now rather than at its next audit.

        Nothing is lost when this does not arrive, so a bus that is down is logged and not raised.
        """
        try:
            self._client.cast(context, "lease_changed", retry=0, lease_id=lease_id)
        except rpc.BusError as error:
            LOG.warning("the engine will see lease %s at its next audit: %s", lease_id, error)

    def endpoint_started(self, host: str, timeout: float = 10.0) -> list[Binding]:
        """Announce the endpoint of *host*; return every binding it should hold, and no other.

        Raises `rpc.BusError` when no engine answers within *timeout* seconds.
        """
        answer = self._client.call(
            RequestContext(overwrite=False), "endpoint_started", timeout=timeout, host=host
        )
        return [Binding.from_dict(binding) for binding in answer]

    def endpoint_report(self, host: str, report: Mapping[str, Any]) -> None:
        """Send `gsaas.rodvr.endpoint.Report.to_dict()` of *host*."""
        context = RequestContext(overwrite=False)
        self._client.cast(context, "endpoint_report", host=host, report=dict(report))

    def gpus_report(self, host: str, gpu_address: str, gpus: Sequence[GpuInfo]) -> None:
        """Send every GPU of *host*, whose daemons listen at *gpu_address*. It is the host's heartbeat, too."""
        self._client.cast(
            RequestContext(overwrite=False),
            "gpus_report",
            host=host,
            gpu_address=gpu_address,
            gpus=[asdict(gpu) for gpu in gpus],
        )
