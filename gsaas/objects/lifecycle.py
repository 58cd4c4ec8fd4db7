# SPDX-License-Identifier: Apache-2.0
"""The state machine of a lease: a table of which event leads from which status to which.

1. A lease begins as QUEUED if its request waits for GPUs, or as CLAIMED if it has them at once.
2. An event that the table does not contain is illegal in that status and changes nothing.
3. ERROR can be entered from every status in which something can still fail; only a release leads out of it. The
   engine returns the GPUs of a lease in ERROR at once; the release is the tenant's acknowledgement.
4. A lease without a server skips BOOTING: it goes from CLAIMED to ACTIVE.

Pure: no database, clock or message bus.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class Status(enum.StrEnum):
    """The status of a lease."""

    QUEUED = "QUEUED"
    CLAIMED = "CLAIMED"
    BOOTING = "BOOTING"
    ACTIVE = "ACTIVE"
    RELEASING = "RELEASING"
    RELEASED = "RELEASED"
    ERROR = "ERROR"


class Event(enum.StrEnum):
    """What changes the status of a lease."""

    CLAIM = "claim"
    """A lease in the queue has claimed GPUs."""
    BOOT = "boot"
    """The cloud has created the server."""
    ACTIVATE = "activate"
    """The server, if it has one, is active, and all agents have confirmed what its cGPUs need."""
    FAIL = "fail"
    """A step of the launch has failed permanently."""
    RELEASE = "release"
    """The lease is to end: its owner terminates it, or its server was deleted."""
    FINISH = "finish"
    """Everything that the lease had has been removed and released."""


ENTITLED = (Status.CLAIMED, Status.BOOTING, Status.ACTIVE)
"""Statuses in which a lease has GPUs that its consumer may reach.

A lease that is RELEASING may still have claims, but nothing is installed for it: an agent that restarts at that
moment would install it again after its removal was confirmed.
"""

TRANSITIONS: dict[tuple[Status, Event], Status] = {
    (Status.QUEUED, Event.CLAIM): Status.CLAIMED,
    (Status.QUEUED, Event.FAIL): Status.ERROR,
    (Status.QUEUED, Event.RELEASE): Status.RELEASING,
    (Status.CLAIMED, Event.BOOT): Status.BOOTING,
    (Status.CLAIMED, Event.ACTIVATE): Status.ACTIVE,
    (Status.CLAIMED, Event.FAIL): Status.ERROR,
    (Status.CLAIMED, Event.RELEASE): Status.RELEASING,
    (Status.BOOTING, Event.ACTIVATE): Status.ACTIVE,
    (Status.BOOTING, Event.FAIL): Status.ERROR,
    (Status.BOOTING, Event.RELEASE): Status.RELEASING,
    (Status.ACTIVE, Event.FAIL): Status.ERROR,
    (Status.ACTIVE, Event.RELEASE): Status.RELEASING,
    (Status.RELEASING, Event.FINISH): Status.RELEASED,
    (Status.ERROR, Event.RELEASE): Status.RELEASING,
}

IDLE, IN_USE, SHELVED = "idle", "in-use", "shelve"
"""Events that change no status: the owner of an idle lease is warned, its warning is withdrawn, its server is shelved
because it stayed idle."""
ENDING, END = "ending", "end"
"""Events that change no status: the owner of a lease is warned of its end, and that has come, before it is released."""


def next_status(status: Status, event: Event) -> Status | None:
    """Return the status that follows *status* on *event*; None if the event is illegal in *status*."""
    return TRANSITIONS.get((status, event))


class LeaseEvent(NamedTuple):
    """One event of a lease: its name, the lease's status after it, and a detail for the operator."""

    event: str
    status: str
    detail: str | None = None
