# SPDX-License-Identifier: Apache-2.0
"""Calls to the agents of hosts, any of which may be down: with a timeout and a circuit breaker for each host."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from gsaas import rpc
from gsaas.context import RequestContext
from gsaas.objects.printable import one_line

LONGEST_ERROR = 1024
"""Characters of an agent's error that are repeated."""


class AgentCallFailed(Exception):
    """The agent did not confirm the call: it may have been carried out or not, and has to be repeated later."""


class AgentClient:
    """Calls the agents of one kind, one on each host: *kind* is `rpc.MONITOR` or `rpc.RODVR`, *agent* is what error
    messages call one.

    A call fails after *timeout* seconds without an answer. That opens the host's circuit: for as long again, calls to
    it fail at once. Otherwise one dead host would block every worker of an engine. After that the circuit is half-open:
    one call is let through, and the circuit closes if it gets any answer.
    """

    def __init__(
        self,
        bus: rpc.Bus,
        kind: str,
        version: str,
        agent: str,
        timeout: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bus = bus
        self._kind = kind
        self._version = version
        self._agent = agent
        self._timeout = timeout
        self._clock = clock
        self._lock = threading.Lock()
        self._open_until: dict[str, float] = {}
        """Host whose circuit is open -> when it becomes half-open."""

    def cast(self, host: str, method: str, **arguments: Any) -> None:
        """Send the agent of *host* a message that is not answered. Raises `rpc.BusError`."""
        self._client(host).cast(RequestContext(overwrite=False), method, **arguments)

    def call(self, host: str, method: str, *, version: str | None = None, **arguments: Any) -> Any:
        """Call a method of the agent of *host*, and return its answer; raises `AgentCallFailed`.

        *version* is that of the method, if it is newer than those that every agent serves.
        """
        self._check_circuit(host)
        context = RequestContext(overwrite=False)
        try:
            client = self._client(host, version)
            answer = client.call(context, method, timeout=self._timeout, **arguments)
        except rpc.Timeout as error:
            self._open_circuit(host)
            raise AgentCallFailed(f"{self._agent} of {host} does not answer") from error
        except rpc.Undelivered as error:
            self._close_circuit(host)  # the bus failed, not necessarily the host
            raise AgentCallFailed(f"{self._agent} of {host} cannot be called: {error}") from error
        except Exception as error:  # an exception of the agent's method, carried over the bus
            self._close_circuit(host)
            told = one_line(str(error), LONGEST_ERROR)  # the agent may have sent any text
            raise AgentCallFailed(f"{self._agent} of {host} reports an error: {told}") from error
        self._close_circuit(host)
        return answer

    def _client(self, host: str, version: str | None = None) -> rpc.RpcClient:
        topic = rpc.agent_name(self._kind, host)
        return rpc.RpcClient(self._bus, topic, version or self._version)

    def _check_circuit(self, host: str) -> None:
        with self._lock:
            until = self._open_until.get(host)
            if until is None:
                return
            if self._clock() < until:
                raise AgentCallFailed(f"{self._agent} of {host} did not answer a moment ago")
            # Half-open: this call is let through. The others go on failing at once until its result is known.
            self._open_until[host] = self._clock() + 2 * self._timeout

    def _open_circuit(self, host: str) -> None:
        with self._lock:
            self._open_until[host] = self._clock() + self._timeout

    def _close_circuit(self, host: str) -> None:
        with self._lock:
            self._open_until.pop(host, None)
