# SPDX-License-Identifier: Apache-2.0
"""Every step of a lease's life leads to its notifications, and nothing else does."""

from __future__ import annotations

from gsaas.grants import redemption
from gsaas.notifications import events
from gsaas.objects.lifecycle import ENDING, IDLE, TRANSITIONS, Event
from gsaas.objects.move import DRAIN, DRAIN_CANCELLED, GPU_LOST, MOVE, MOVED, UNDONE

OF_MOVES = (MOVE, MOVED, UNDONE, DRAIN, DRAIN_CANCELLED, GPU_LOST)


def test_every_event_of_the_state_machine_but_the_boot_is_told_of():
    """That the cloud has created the server says nothing that Nova's own notifications do not say."""
    silent = {event for _, event in TRANSITIONS if not events.of_lease(event, waited=False)}
    assert silent == {Event.BOOT}


def test_a_creation_starts_once_and_ends_once_whether_the_lease_waits_or_not():
    at_once = events.of_lease(Event.CLAIM, waited=False)
    later = events.of_lease(events.QUEUE, waited=True) + events.of_lease(Event.CLAIM, waited=True)
    assert at_once == later == ("lease.create.start", "lease.create.end")


def test_notes_in_the_story_of_a_lease_are_not_told_of():
    for note in (redemption.REDEEMED, redemption.REFUSED, "daemon-down"):
        assert events.of_lease(note, waited=False) == ()


def test_every_type_has_a_priority():
    found = {
        kind
        for event in (events.QUEUE, IDLE, ENDING, *OF_MOVES, *Event)
        for kind in events.of_lease(event, waited=False)
    }
    others = {events.QUOTA_EXCEEDED, events.GPU_WITHDRAWN, events.GPU_RETURNED}
    assert set(events.PRIORITIES) == found | others | set(events.OF_RESERVATION.values())
