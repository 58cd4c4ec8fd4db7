# SPDX-License-Identifier: Apache-2.0
"""Keeps for reservations what they wait for: before a lease of the queue is served, and by the engine's audit."""

from __future__ import annotations

import datetime
import logging

from gsaas.db import clock
from gsaas.db import reservations as rows
from gsaas.db.database import Database
from gsaas.gpgpums.changes import Keep
from gsaas.gpgpums.committer import Committer, end_each

LOG = logging.getLogger(__name__)


class ReservationKeeper:
    """Keeps the shares of reservations, from *notice* before their beginning on."""

    def __init__(
        self, database: Database, committer: Committer, notice: datetime.timedelta
    ) -> None:
        self.notice = notice
        self._database = database
        self._committer = committer

    def keep_waiting(self) -> None:
        """Keep what is free of the shares that reservations wait for."""
        with self._database.reading() as connection:
            waiting = rows.waiting(connection, clock.now(connection) + self.notice)
        end_each(waiting, self.keep)

    def keep(self, reservation_id: str) -> bool:
        """Bring the status of a reservation up to date, move what it has lost, and keep what is free of its shares.

        Returns False if it is over. Raises `NotFound`, `ClaimConflict`.
        """
        entry = self._committer.commit(Keep(reservation_id, self.notice)).reservation
        if entry is None:
            return False
        for share, to in entry.moves:
            before, after = share.gpu_uuid, to.gpu_uuid
            LOG.info("reservation %s moves from %s to %s", reservation_id, before, after)
        return True
