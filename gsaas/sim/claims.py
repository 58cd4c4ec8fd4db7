# SPDX-License-Identifier: Apache-2.0
"""Claims in a pool in memory: what one database transaction does in the service."""

from __future__ import annotations

from collections.abc import Sequence

from gsaas.gpgpums.pool import Pool
from gsaas.objects.gpu import Gpu
from gsaas.objects.placement import Placement


class PoolClaims:
    """Claims and returns in *pool*, with the generations that the service would give its GPUs. Not thread-safe."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._newest = max((gpu.generation for gpu in pool), default=0)

    def claim(self, placement: Placement, *, exclusive: bool) -> Sequence[Gpu]:
        """Claim *placement* for one lease; return its GPUs as they are afterwards.

        Raises `KeyError` for an unknown GPU, and `ValueError` for one with too little free memory.
        """
        gpus = tuple(
            self.pool.claimed(placement, exclusive=exclusive, newest=self._newest).values()
        )
        self._newest += len(placement.shares)
        self._put(gpus)
        return gpus

    def release(self, placement: Placement) -> Sequence[Gpu]:
        """Return what one lease has claimed; return its GPUs as they are afterwards.

        Raises `KeyError` for an unknown GPU, and `ValueError` if that much was never claimed.
        """
        self._newest += 1
        gpus = tuple(
            self.pool[uuid].release(size, generation=self._newest)
            for uuid, size in placement.memory_by_gpu().items()
        )
        self._put(gpus)
        return gpus

    def _put(self, gpus: Sequence[Gpu]) -> None:
        for gpu in gpus:
            self.pool.put(gpu)
