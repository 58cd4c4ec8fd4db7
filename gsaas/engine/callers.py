"""For whom leases are launched: contexts with tokens, kept in memory until the server is made, and nowhere else."""

from __future__ import annotations

import threading

from gsaas.context import RequestContext


class Callers:
    """Contexts by lease and speaker: others than its owner may speak of a lease. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._contexts: dict[str, dict[tuple[str, str], RequestContext]] = {}

    def keep(self, lease_id: str, context: RequestContext) -> None:
        """Remember who spoke of a lease; without a token there is nothing to remember."""
        if context.auth_token:
            with self._lock:
                spoken = self._contexts.setdefault(lease_id, {})
                spoken[context.user_id, context.project_id] = context

    def get(self, lease_id: str, user_id: str, project_id: str) -> RequestContext | None:
        """The context of the one who launched the lease, whom the database knows; None if he was not heard of."""
        with self._lock:
            return self._contexts.get(lease_id, {}).get((user_id, project_id))

    def forget(self, lease_id: str) -> None:
        with self._lock:
            self._contexts.pop(lease_id, None)
