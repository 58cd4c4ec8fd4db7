# SPDX-License-Identifier: Apache-2.0
"""Returning what leases have claimed, and ending leases that have nothing else."""

from __future__ import annotations

from gsaas import exceptions
from gsaas.gpgpums.changes import Change, Condition, Return, Terminate
from gsaas.gpgpums.committer import Committer
from gsaas.gpgpums.queue_manager import QueueManager
from gsaas.objects.lease import Lease


class Returns:
    """Returns claims; what is free again then goes to *queue*."""

    def __init__(self, committer: Committer, queue: QueueManager) -> None:
        self._committer = committer
        self._queue = queue

    def release(self, lease_id: str) -> None:
        """Return all that a lease claims, and record the time. A second call changes nothing.

        Raises `ClaimConflict` if other transactions were faster each time.
        """
        try:
            self._commit(Return(lease_id))
        except exceptions.NotFound:
            return

    def terminate(
        self, lease_id: str, detail: str | None = None, if_: Condition = lambda _: True
    ) -> Lease | None:
        """Release a lease that has only claims or a place in the queue; set any other to RELEASING, for the engine.

        *if_* is called with the lease first. If it returns False, nothing changes and the result is None; what it
        raises is raised. Otherwise returns the lease with its new status. Raises `NotFound`, `IllegalTransition`, and
        `ClaimConflict` as `release` does.
        """
        return self._commit(Terminate(lease_id, detail, if_))

    def end(self, lease_id: str, why: str, if_: Condition) -> bool:
        """Release a lease whose client is gone; False if it is being released already, or *if_* returns False."""
        try:
            return self.terminate(lease_id, why, if_) is not None
        except exceptions.IllegalTransition:
            return False

    def _commit(self, change: Change) -> Lease | None:
        entry = self._committer.commit(change)
        self._queue.carry_out(entry.effects)
        return entry.lease
