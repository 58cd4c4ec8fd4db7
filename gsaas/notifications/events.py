# SPDX-License-Identifier: Apache-2.0
"""Which notifications a committed change leads to. Pure.

queue     a lease is stored that waits                      lease.create.start
claim     a lease has claimed its GPUs                      lease.create.end, and before it, unless the lease
                                                            waited, lease.create.start
activate  it can be used                                    lease.activate
fail      a step of its launch has failed                   lease.fail
idle      its owner is warned: nothing uses it               lease.idle
ending    its owner is warned: its end is near               lease.ending
move      cGPUs of it begin to go to other GPUs              lease.move.start
moved     its programs reach them there                     lease.move.end
move-undone  they stay where they were                      lease.move.undo
drain     a host of its GPUs is drained                      lease.drain.start
drain-cancelled  it is drained no longer                     lease.drain.cancel
gpu-lost  a GPU of it is lost, with what was there           lease.gpu.lost
release   it is to end                                      lease.release.start
finish    all that it had is returned                       lease.release.end

Each event of a reservation leads to the notification of the same name, such as reservation.start.
"""

from __future__ import annotations

from gsaas.objects.lifecycle import ENDING, IDLE, Event
from gsaas.objects.move import DRAIN, DRAIN_CANCELLED, GPU_LOST, MOVE, MOVED, UNDONE
from gsaas.objects.reservation import ReservationEvent

CREATE_START, CREATE_END = "lease.create.start", "lease.create.end"
ACTIVATE, FAIL = "lease.activate", "lease.fail"
WARNED, END_NEAR = "lease.idle", "lease.ending"
MOVE_START, MOVE_END, MOVE_UNDO = "lease.move.start", "lease.move.end", "lease.move.undo"
DRAIN_START, DRAIN_CANCEL = "lease.drain.start", "lease.drain.cancel"
LOST = "lease.gpu.lost"
RELEASE_START, RELEASE_END = "lease.release.start", "lease.release.end"
QUOTA_EXCEEDED = "quota.exceeded"
GPU_WITHDRAWN, GPU_RETURNED = "gpu.withdrawn", "gpu.returned"
OF_RESERVATION = {event: f"reservation.{event}" for event in ReservationEvent}

INFO, WARN, ERROR = "info", "warn", "error"

PRIORITIES = {
    CREATE_START: INFO,
    CREATE_END: INFO,
    ACTIVATE: INFO,
    FAIL: ERROR,
    WARNED: WARN,
    END_NEAR: WARN,
    MOVE_START: INFO,
    MOVE_END: INFO,
    MOVE_UNDO: WARN,
    DRAIN_START: WARN,
    DRAIN_CANCEL: INFO,
    LOST: ERROR,
    RELEASE_START: INFO,
    RELEASE_END: INFO,
    QUOTA_EXCEEDED: WARN,
    GPU_WITHDRAWN: ERROR,
    GPU_RETURNED: INFO,
    **dict.fromkeys(OF_RESERVATION.values(), INFO),
}
"""Event type -> priority: the end of the name of the queue that it goes to, as in `versioned_notifications.info`."""

QUEUE = "queue"
"""The event of a lease that has joined the queue; it is no event of the state machine."""

_BY_EVENT = {
    QUEUE: (CREATE_START,),
    Event.ACTIVATE: (ACTIVATE,),
    Event.FAIL: (FAIL,),
    IDLE: (WARNED,),
    ENDING: (END_NEAR,),
    MOVE: (MOVE_START,),
    MOVED: (MOVE_END,),
    UNDONE: (MOVE_UNDO,),
    DRAIN: (DRAIN_START,),
    DRAIN_CANCELLED: (DRAIN_CANCEL,),
    GPU_LOST: (LOST,),
    Event.RELEASE: (RELEASE_START,),
    Event.FINISH: (RELEASE_END,),
}


def of_lease(event: str, *, waited: bool) -> tuple[str, ...]:
    """Return the types of the notifications about *event* of a lease, in order; none for other events than above.

    *waited* says whether the lease was ever in the queue.
    """
    if event == Event.CLAIM:
        return (CREATE_END,) if waited else (CREATE_START, CREATE_END)
    return _BY_EVENT.get(event, ())
