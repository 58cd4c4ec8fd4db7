# SPDX-License-Identifier: Apache-2.0
"""Claims in a pool in memory: what one database transaction does in the service."""

from __future__ import annotations

from gsaas.gpgpums.pool import Pool
from gsaas.objects.gpu import Gpu


def claim_gpu(pool: Pool, uuid: str, memory_mb: int, *, exclusive: bool) -> Gpu:
    """Claim *memory_mb* MiB of one GPU of *pool*; return the GPU as it is afterwards.

    Raises `KeyError` for an unknown GPU, and `ValueError` if it has too little free memory.
    """
    gpu = _find(pool, uuid)
    claimed = gpu.claim(memory_mb, exclusive=exclusive, generation=gpu.generation + 1)
    pool.put(claimed)
    return claimed


def release_gpu(pool: Pool, uuid: str, memory_mb: int) -> Gpu:
    """Release *memory_mb* MiB, all that one lease claims of a GPU; return the GPU as it is afterwards.

    Raises `KeyError` for an unknown GPU, and `ValueError` if that much was never claimed.
    """
    gpu = _find(pool, uuid)
    released = gpu.release(memory_mb, generation=gpu.generation + 1)
    pool.put(released)
    return released


def _find(pool: Pool, uuid: str) -> Gpu:
    gpu = pool.get(uuid)
    if gpu is None:
        raise KeyError(uuid)
    return gpu
