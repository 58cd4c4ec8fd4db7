# SPDX-License-Identifier: Apache-2.0
"""Has leases begin to move that the engine moves by itself, and remembers for a while which of them could not."""

from __future__ import annotations

import time
from collections.abc import Mapping

from gsaas import exceptions
from gsaas.gpgpums.claims import Claims
from gsaas.gpgpums.committer import end_each
from gsaas.gpgpums.move_changes import Target
from gsaas.objects.lifecycle import LeaseEvent
from gsaas.objects.move import Kind

AGAIN = 15.0
"""Seconds after which a move that was refused may be tried again: there may be room now."""


class Moves:
    """Moves that the engine begins. Not for several threads at once."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._refused: dict[str, tuple[float, str]] = {}
        """Lease -> when, as `time.monotonic` counts, and why its move was refused."""

    def refusal(self, lease_id: str) -> str | None:
        """Return why a move of a lease was refused in the last `AGAIN` seconds; None if it was not."""
        at, reason = self._refused.get(lease_id, (0.0, None))
        return reason if time.monotonic() - at < AGAIN else None

    def begin(
        self,
        moves: Mapping[str, Kind],
        leaving: frozenset[str],
        because: LeaseEvent | None = None,
    ) -> tuple[list[str], dict[str, str]]:
        """Have leases begin to move away from GPUs; return those that do, and why others do not, by id.

        *because* is an event of each of those that do. Raises only `oslo_db.exception.DBConnectionError`.
        """
        now = time.monotonic()
        self._refused = {one: it for one, it in self._refused.items() if now - it[0] < AGAIN}
        refusals: dict[str, str] = {}

        def begin(lease_id: str) -> bool:
            try:
                self._claims.move(lease_id, Target(leaving=leaving), moves[lease_id], because)
            except exceptions.LeaseNotMovable as error:
                refusals[lease_id] = str(error.facts["reason"])
            except exceptions.GsaasError as error:
                refusals[lease_id] = str(error)
            return lease_id not in refusals

        begun = end_each(moves, begin)
        self._refused |= {lease_id: (now, reason) for lease_id, reason in refusals.items()}
        return begun, refusals
