"""Calls to the agent of one host, which may be down."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from gsaas import rpc
from gsaas.context import RequestContext


class Unconfirmed(Exception):
    """The agent did not do it, or did not say so in time: nothing is known, and the call is to be repeated."""


class HostCalls:
    """Calls to whoever serves *topic* for a host; *agent* is what messages call it.

    A call raises `Unconfirmed` after *timeout* seconds. For as long again, calls to the same host fail at once:
    otherwise one dead host would keep every worker of an engine waiting.
    """

    def __init__(
        self,
        bus: rpc.Bus,
        topic: str,
        version: str,
        agent: str,
        timeout: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = rpc.Client(bus, topic, version)
        self._agent = agent
        self._timeout = timeout
        self._clock = clock
        self._lock = threading.Lock()
        self._shunned: dict[str, float] = {}
        """Host that did not answer -> when it may be asked again."""

    def cast(self, method: str, *, fanout: bool = False, **arguments: Any) -> None:
        """Hand over a message that is not answered; with *fanout*, to all hosts. Raises `rpc.BusError`."""
        self._client.cast(RequestContext(overwrite=False), method, fanout=fanout, **arguments)

    def call(self, host: str, method: str, **arguments: Any) -> Any:
        """Ask the agent of *host*, and return its answer."""
        self._check(host)
        context = RequestContext(overwrite=False)
        try:
            answer = self._client.call(
                context, method, server=host, timeout=self._timeout, **arguments
            )
        except rpc.Timeout as error:
            self._shun(host)
            raise Unconfirmed(f"{self._agent} of {host} does not answer") from error
        except rpc.Undelivered as error:
            self._trust(host)  # it was not asked
            raise Unconfirmed(f"{self._agent} of {host} cannot be asked: {error}") from error
        except Exception as error:  # what is raised there arrives here as what it was
            self._trust(host)
            raise Unconfirmed(f"{self._agent} of {host} could not: {error}") from error
        self._trust(host)
        return answer

    def _check(self, host: str) -> None:
        with self._lock:
            until = self._shunned.get(host)
            if until is None:
                return
            if self._clock() < until:
                raise Unconfirmed(f"{self._agent} of {host} did not answer a moment ago")
            # One tries again. Until it knows, the others go on failing at once.
            self._shunned[host] = self._clock() + 2 * self._timeout

    def _shun(self, host: str) -> None:
        with self._lock:
            self._shunned[host] = self._clock() + self._timeout

    def _trust(self, host: str) -> None:
        with self._lock:
            self._shunned.pop(host, None)
