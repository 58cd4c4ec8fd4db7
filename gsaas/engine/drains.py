# SPDX-License-Identifier: Apache-2.0
"""Carries out the drains of hosts: leases leave their GPUs, as `drain` decides.

All that a drain needs is in the rows of hosts and leases. So any engine goes on with it, and several may at once.
"""

from __future__ import annotations

from gsaas.db import claims as claim_rows
from gsaas.db import clock, hosts, leases, readings
from gsaas.db.database import Database
from gsaas.db.hosts import Drain
from gsaas.engine import drain as deciding
from gsaas.engine.drain import Staying
from gsaas.engine.moves import Moves
from gsaas.gpgpums.claims import Claims
from gsaas.gpgpums.committer import end_each


class Drains:
    """The drains of the hosts of *database*."""

    def __init__(self, database: Database, claims: Claims) -> None:
        self._database = database
        self._moves = Moves(claims)

    def audit(self) -> list[str]:
        """Have leases begin to move; return those that the engine has to reconcile.

        Raises only `oslo_db.exception.DBConnectionError`: an error of one host does not keep the others from it.
        """
        with self._database.reading() as connection:
            found = {each.host: each for each in hosts.drains(connection)}
        begun: list[str] = []

        def carry_out(host: str) -> bool:
            begun.extend(self._carry_out(found[host]))
            return True

        end_each(found, carry_out)
        return begun

    def _carry_out(self, drain: Drain) -> list[str]:
        with self._database.reading() as connection:
            now = clock.now(connection)
            gpus = claim_rows.gpus_on(connection, drain.host)
            there = leases.on_gpus(connection, gpus)
            open_ = readings.connections(connection, [one.id for one in there], now)
        plan = deciding.plan(
            (Staying(one, open_.get(one.id), self._moves.refusal(one.id)) for one in there),
            drain.by,
            now,
        )
        begun, refusals = self._moves.begin(plan.moves, frozenset(gpus))
        waits = {**plan.waits, **dict.fromkeys(begun, deciding.MOVES), **refusals}
        if waits != (drain.waits or {}):
            self._database.change(
                lambda connection: hosts.note_waits(connection, drain.host, drain.since, waits)
            )
        return begun
