"""For whom leases are launched: contexts with tokens, kept in memory until the server is made, and nowhere else."""

from __future__ import annotations

import threading

from gsaas.context import RequestContext


class Callers:
    """Contexts by lease. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._contexts: dict[str, RequestContext] = {}

    def keep(self, lease_id: str, context: RequestContext) -> None:
        """Remember who asked for a lease; without a token there is nothing to remember."""
        if context.auth_token:
            with self._lock:
                self._contexts[lease_id] = context

    def get(self, lease_id: str) -> RequestContext | None:
        with self._lock:
            return self._contexts.get(lease_id)

    def forget(self, lease_id: str) -> None:
        with self._lock:
            self._contexts.pop(lease_id, None)
