"""Announces that a lease has left the queue to API workers and engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gsaas.metrics import counted
from gsaas.objects.lifecycle import Status
from gsaas.rpc.api import ApiClient
from gsaas.rpc.engine import EngineClient


class Announcer:
    """Called by `gsaas.gpgpums.claims.Claims` after its commits.

    *ring* wakes clients that wait for the lease in this process, and returns whether there were any; only if there were
    none, *api* tells the other processes. *engine* continues leases that are not ready yet, and forgets the callers of
    those that never will be.
    """

    def __init__(
        self,
        engine: EngineClient,
        api: ApiClient | None = None,
        ring: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._engine = engine
        self._api = api
        self._ring = ring

    def __call__(
        self,
        lease_id: str,
        status: str,
        policy: str | None,
        took: Mapping[str, float] | None = None,
    ) -> None:
        if policy is not None and status in (Status.CLAIMED, Status.ACTIVE):
            counted.granted(policy)
        if status == Status.ACTIVE:
            counted.launched(took or {})
        if not self._ring(lease_id) and self._api is not None:
            self._api.leases_changed([lease_id])
        if status != Status.ACTIVE:
            self._engine.lease_left_queue(lease_id)
