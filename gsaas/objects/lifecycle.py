"""A lease's life as a table: which event leads from which state to which.

1. A lease is born QUEUED, when its caller waits for GPUs, or CLAIMED, when it has them.
2. An event that the table does not name is illegal and changes nothing.
3. ERROR may be entered from every state in which something can still go wrong; only a release leads out of it.
   What a lease in ERROR still holds is given back by the engine at once; the release is the tenant's
   acknowledgement.
4. A lease that stands alone has no server to boot: it goes from CLAIMED to ACTIVE.

This module knows no database, clock or message bus: states and events in, a state out.
"""

from __future__ import annotations

import enum


class Status(enum.StrEnum):
    """Where a lease stands."""

    QUEUED = "QUEUED"
    CLAIMED = "CLAIMED"
    BOOTING = "BOOTING"
    ACTIVE = "ACTIVE"
    RELEASING = "RELEASING"
    RELEASED = "RELEASED"
    ERROR = "ERROR"


class Event(enum.StrEnum):
    """What can happen to it."""

    CLAIM = "claim"
    """There are GPUs for it, and now they are its own."""
    BOOT = "boot"
    """The cloud has made the server."""
    ACTIVATE = "activate"
    """The server, if it has one, is active, and what its cGPUs need has been confirmed."""
    FAIL = "fail"
    """A step failed for good."""
    RELEASE = "release"
    """Somebody wants it gone: its owner, or whoever deleted the server."""
    FINISH = "finish"
    """Nothing of it is left."""


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


def next_status(status: Status, event: Event) -> Status | None:
    """Return the status after *event*; None if the event is illegal in *status*."""
    return TRANSITIONS.get((status, event))
