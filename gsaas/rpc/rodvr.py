"""What the engine asks of the RODVR endpoint of one host."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from gsaas import rpc
from gsaas.context import RequestContext
from gsaas.rodvr.bindings import Binding


class Unconfirmed(Exception):
    """The endpoint did not do it, or did not say so in time: nothing is known, and the call is to be repeated."""


class EndpointClient:
    """Calls to an endpoint, by version:

    1.0  apply, remove

    Each returns the endpoint's report on that port, as `gsaas.rodvr.report.Report.to_dict()`, or raises `Unconfirmed`
    after *timeout* seconds. For as long again, calls to the same host fail at once: otherwise one dead
    host would keep every worker of an engine waiting.
    """

    VERSION = "1.0"

    def __init__(
        self, bus: rpc.Bus, timeout: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = rpc.Client(bus, rpc.RODVR, self.VERSION)
        self._timeout = timeout
        self._clock = clock
        self._lock = threading.Lock()
        self._shunned: dict[str, float] = {}
        """Host that did not answer -> when it may be asked again."""

    def apply(self, host: str, binding: Binding) -> dict[str, Any]:
        """Install *binding* on *host*: now if its tap exists, else the moment it appears."""
        return self._call(host, "apply", binding=binding.to_dict())

    def remove(self, host: str, port_id: str) -> dict[str, Any]:
        """Remove the binding of a port and cut its connections; one that is not there is no error."""
        return self._call(host, "remove", port_id=port_id)

    def _call(self, host: str, method: str, **arguments: Any) -> dict[str, Any]:
        self._check(host)
        context = RequestContext(overwrite=False)
        try:
            answer = self._client.call(
                context, method, server=host, timeout=self._timeout, **arguments
            )
        except rpc.Timeout as error:
            self._shun(host)
            raise Unconfirmed(f"the endpoint of {host} does not answer") from error
        except rpc.Undelivered as error:
            self._trust(host)  # it was not asked
            raise Unconfirmed(f"the endpoint of {host} cannot be asked: {error}") from error
        except Exception as error:  # what is raised there arrives here as what it was
            self._trust(host)
            raise Unconfirmed(f"the endpoint of {host} could not: {error}") from error
        self._trust(host)
        return answer

    def _check(self, host: str) -> None:
        with self._lock:
            until = self._shunned.get(host)
            if until is None:
                return
            if self._clock() < until:
                raise Unconfirmed(f"the endpoint of {host} did not answer a moment ago")
            # One tries again. Until it knows, the others go on failing at once.
            self._shunned[host] = self._clock() + 2 * self._timeout

    def _shun(self, host: str) -> None:
        with self._lock:
            self._shunned[host] = self._clock() + self._timeout

    def _trust(self, host: str) -> None:
        with self._lock:
            self._shunned.pop(host, None)
