# SPDX-License-Identifier: Apache-2.0
"""The move of cGPUs of a lease to other GPUs: its stages and kinds, and which leases can be moved. Pure.

1. While it goes on, each of these cGPUs has two claims: the lease's own (`Lease.claims`), and one more
   (`Lease.others`). Both count as used, so neither GPU is over-committed; for a quota, the lease counts once.
2. `STARTING`: the others are where the cGPUs go to. Their daemons start, and their hosts admit the consumer.
3. `SWITCHED`: own and others have changed places, in one transaction. Both are still served, until the endpoint of the
   consumer's host has confirmed that masked addresses lead to the new GPUs.
4. `ENDING`: the others are not used any more: the former GPUs, or those of a move that was undone. Their memory is
   returned when their hosts have confirmed that their daemons are gone.
"""

from __future__ import annotations

import enum

from gsaas.objects.access import Access
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status


class Stage(enum.StrEnum):
    """How far a move is."""

    STARTING = "starting"
    SWITCHED = "switched"
    ENDING = "ending"


class Kind(enum.StrEnum):
    """What a move does to the programs that use the cGPUs. A kind that keeps connections needs a checkpoint provider,
    which GSaaS has not."""

    IDLE = "idle"
    """It is made only if no connection is open when masked addresses begin to lead elsewhere."""
    CUT = "cut"
    """Connections that are open then end; what programs had on the GPUs is lost, and they have to start again."""


SERVED = (Stage.STARTING, Stage.SWITCHED)
"""Stages in which the hosts of both claims of a cGPU serve its consumer."""
MOVE, MOVED, UNDONE = "move", "moved", "move-undone"
"""Events that change no status: cGPUs begin to move; programs reach them on the other GPUs; a move was given up, and
the lease has its GPUs as before."""
DRAIN, DRAIN_CANCELLED = "drain", "drain-cancelled"
"""Events that change no status: a host of its GPUs is drained, and is drained no longer."""
GPU_LOST = "gpu-lost"
"""The event before the move of a lease whose GPU is lost: what its programs had there is gone."""


def consented(lease: Lease, kind: Kind) -> Kind:
    """Return the kind of a move of *lease* that is to be of this *kind*, or of one that its owner consents to."""
    return Kind.CUT if lease.movable == Kind.CUT else kind


def refusal(lease: Lease, index: int | None) -> str | None:
    """Return why no cGPU of *lease*, or not the one with this *index*, can be moved now; None if it can."""
    if lease.status != Status.ACTIVE:
        return f"it is {lease.status}, and only a lease that is {Status.ACTIVE} can be moved"
    if lease.access == Access.NATIVE:
        return "its programs use the GPUs as devices of their own host, without addresses that could lead elsewhere"
    if lease.access != Access.MASKED:
        return "its programs use the real addresses of GPUs, which no endpoint can lead elsewhere"
    if lease.reservation_id is not None:
        return "its GPUs are those of a reservation"
    if index is None:
        return None
    if not 0 <= index < lease.count:
        return f"it has no cGPU {index}: its {lease.count} cGPUs are counted from 0"
    if lease.one_daemon and lease.count > 1:
        return f"one daemon serves all its {lease.count} cGPUs, which move together: leave out the index"
    return None
