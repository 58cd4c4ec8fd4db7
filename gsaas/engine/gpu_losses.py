# SPDX-License-Identifier: Apache-2.0
"""Makes cGPUs anew whose GPUs are lost, if the operator wants it: `[engine]on_gpu_loss`.

A GPU is lost while it is withdrawn or its host is silent. Each engine counts for itself for how long it has seen that,
so after a restart it counts anew. A cGPU is made anew by a move of its lease. So its masked address leads to one daemon
at any time, and the lost GPU is returned when its host has reported that nothing of the lease is left there.
"""

from __future__ import annotations

import time

from oslo_config import cfg

from gsaas.db import clock, gpus, leases
from gsaas.db.database import Database
from gsaas.engine import drain
from gsaas.engine.drain import Staying
from gsaas.engine.moves import Moves
from gsaas.gpgpums.claims import Claims
from gsaas.objects.lifecycle import LeaseEvent, Status
from gsaas.objects.move import GPU_LOST

REMAKE = "remake"


class GpuLosses:
    """Applies what *conf* says of lost GPUs to the leases of *database*."""

    def __init__(self, conf: cfg.ConfigOpts, database: Database, claims: Claims) -> None:
        self._is_wanted = conf.engine.on_gpu_loss == REMAKE
        self._after = conf.engine.gpu_loss_after
        self._timeout = conf.gpgpums.heartbeat_timeout
        self._database = database
        self._moves = Moves(claims)
        self._seen: dict[str, float] = {}
        """Lost GPU -> since when, as `time.monotonic` counts, this engine has seen that at every look."""

    def audit(self) -> list[str]:
        """Have leases leave GPUs that are lost for long; return those that the engine has to reconcile."""
        if not self._is_wanted:
            return []
        with self._database.reading() as connection:
            now = clock.now(connection)
            lost = gpus.lost(connection, self._timeout, now)
            looked = time.monotonic()
            self._seen = {uuid: self._seen.get(uuid, looked) for uuid in lost}
            old = [uuid for uuid, since in self._seen.items() if looked - since >= self._after]
            there = leases.on_gpus(connection, old)
        leaving = frozenset(old)
        plan = drain.plan(
            (
                Staying(lease, refused=self._moves.refusal(lease.id))
                for lease in there
                if any(claim.gpu_uuid in leaving for claim in lease.claims)
            ),
            now,
            now,
        )
        said = "; ".join(f"GPU {uuid}: {lost[uuid]}" for uuid in old)
        because = LeaseEvent(GPU_LOST, Status.ACTIVE, said)
        return self._moves.begin(plan.moves, leaving, because)[0]
