"""Tell everybody whom it concerns that a lease has left the queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gsaas.metrics import counted
from gsaas.objects.lifecycle import Status
from gsaas.rpc.api import ApiClient
from gsaas.rpc.engine import EngineClient


class Announcer:
    """Called by `gsaas.gpgpums.claims.Claims` after its commits.

    *ring* wakes who waits in this process, and says whether anybody did; only if nobody did, *api* has to
    tell the other processes. *engine* goes on with leases that are not ready yet, and forgets the callers of
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
