# SPDX-License-Identifier: Apache-2.0
"""Announce to API workers and engines that a lease has left the queue, and to API workers any other new status."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gsaas.objects.lifecycle import Status
from gsaas.rpc.api import ApiClient
from gsaas.rpc.engine import EngineClient


class Announcer:
    """Announces leases that have left the queue; `gsaas.gpgpums.claims.Claims` calls it after each commit.

    *notify* wakes the request that waits for a lease in this process, and returns whether there is one. If there is
    none, *api* notifies the other API workers. *engine* is notified of leases that are not ACTIVE yet: it reconciles
    them, or forgets the token of their caller if they have failed.
    """

    def __init__(
        self,
        engine: EngineClient,
        api: ApiClient | None = None,
        notify: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._engine = engine
        self._api = api
        self._notify = notify

    def __call__(
        self,
        lease_id: str,
        status: str,
        policy: str | None,
        took: Mapping[str, float] | None = None,
    ) -> None:
        """Announce that *lease_id* now has *status*; *policy* and *took* are for metrics, and not used here."""
        self.status_changed(lease_id)
        if status != Status.ACTIVE:
            self._engine.lease_left_queue(lease_id)

    def status_changed(self, lease_id: str) -> None:
        """Wake the requests that wait for *lease_id* to have another status."""
        if not self._notify(lease_id) and self._api is not None:
            self._api.leases_changed([lease_id])
