"""What the engine asks of the RODVR endpoint of one host."""

from __future__ import annotations

from typing import Any

import oslo_messaging

from gsaas import rpc
from gsaas.context import RequestContext
from gsaas.rodvr.bindings import Binding


class EndpointClient:
    """Calls to an endpoint, by version:

    1.0  apply, remove

    Each returns the endpoint's report, `gsaas.rodvr.endpoint.Report.to_dict()`, and raises
    `oslo_messaging.MessagingTimeout` when the endpoint does not answer in time: then nothing is known, and the
    call is to be repeated.
    """

    VERSION = "1.0"

    def __init__(self, bus: oslo_messaging.RPCTransport, timeout: float) -> None:
        self._client = rpc.client(bus, rpc.RODVR, self.VERSION)
        self._timeout = timeout

    def apply(self, host: str, binding: Binding) -> dict[str, Any]:
        """Install *binding* on *host*: now if its tap exists, else the moment it appears."""
        return self._call(host, "apply", binding=binding.to_dict())

    def remove(self, host: str, port_id: str) -> dict[str, Any]:
        """Remove the binding of a port and cut its connections; one that is not there is no error."""
        return self._call(host, "remove", port_id=port_id)

    def _call(self, host: str, method: str, **arguments: Any) -> dict[str, Any]:
        context = RequestContext(overwrite=False)
        return self._client.prepare(server=host, timeout=self._timeout).call(
            context, method, **arguments
        )
