# SPDX-License-Identifier: Apache-2.0
"""The contexts of the callers that leases are launched for, with their tokens.

They are kept in memory until the server of the lease is made, and are stored nowhere else.
"""

from __future__ import annotations

import threading

from gsaas.context import RequestContext


class Callers:
    """Contexts by lease, user and project. Safe to share between threads.

    More than one caller may send requests about a lease, an administrator for example, so each one's context is kept.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._contexts: dict[str, dict[tuple[str | None, str | None], RequestContext]] = {}

    def keep(self, lease_id: str, context: RequestContext) -> None:
        """Keep the context of a request about a lease; does nothing if the context has no token."""
        if context.auth_token:
            with self._lock:
                contexts = self._contexts.setdefault(lease_id, {})
                contexts[context.user_id, context.project_id] = context

    def get(self, lease_id: str, user_id: str, project_id: str) -> RequestContext | None:
        """Return the context that this user of this project sent about a lease; None if there was none."""
        with self._lock:
            return self._contexts.get(lease_id, {}).get((user_id, project_id))

    def forget(self, lease_id: str) -> None:
        """Drop all contexts of a lease; does nothing if there are none."""
        with self._lock:
            self._contexts.pop(lease_id, None)
