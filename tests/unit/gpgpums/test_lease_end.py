# SPDX-License-Identifier: Apache-2.0
"""Which ends leases may have, and what happens by then."""

from __future__ import annotations

import datetime

import pytest

from gsaas import exceptions
from gsaas.gpgpums import lease_end
from gsaas.gpgpums.lease_end import Decision, End, EndPolicy
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status

NOON = datetime.datetime(2026, 11, 28, 12)
MINUTE, HOUR = datetime.timedelta(minutes=1), datetime.timedelta(hours=1)
WARNING = 10 * MINUTE
FREE = EndPolicy()
DAY_AT_MOST = EndPolicy(longest=24 * 3600)


def lease(status=Status.ACTIVE, **fields) -> Lease:
    own = {"claimed_at": None if status == Status.QUEUED else NOON - HOUR} | fields
    return Lease("l", "p", "u", "n", status, 1, "exclusive", None, "any", **own)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (11 * MINUTE, Decision.NOTHING),
        (10 * MINUTE, Decision.WARN),
        (MINUTE, Decision.WARN),
        (0 * MINUTE, Decision.END),
        (-HOUR, Decision.END),
    ],
)
def test_a_lease_is_warned_before_its_end_and_ends_then(before, expected):
    assert lease_end.decide(lease(ends_at=NOON + before), WARNING, NOON) is expected


def test_it_is_warned_once_of_each_end():
    warned = lease(ends_at=NOON + MINUTE, warned_end=NOON + MINUTE)
    assert lease_end.decide(warned, WARNING, NOON) is Decision.NOTHING
    postponed = warned.with_(ends_at=NOON + 2 * MINUTE)
    assert lease_end.decide(postponed, WARNING, NOON) is Decision.WARN


def test_one_that_waits_is_not_warned_and_ends_all_the_same():
    assert (
        lease_end.decide(lease(Status.QUEUED, ends_at=NOON + MINUTE), WARNING, NOON)
        is Decision.NOTHING
    )
    assert lease_end.decide(lease(Status.QUEUED, ends_at=NOON), WARNING, NOON) is Decision.END


@pytest.mark.parametrize("status", [Status.RELEASING, Status.RELEASED, Status.ERROR])
def test_nothing_happens_to_a_lease_that_is_over_or_has_no_end(status):
    assert lease_end.decide(lease(status, ends_at=NOON), WARNING, NOON) is Decision.NOTHING
    assert lease_end.decide(lease(), WARNING, NOON) is Decision.NOTHING


def test_a_duration_begins_when_the_lease_gets_its_gpus():
    assert lease_end.at_claim(lease(duration=3600), NOON) == NOON + HOUR
    assert lease_end.at_claim(lease(ends_at=NOON + MINUTE), NOON) == NOON + MINUTE
    assert lease_end.at_claim(lease(), NOON) is None


def test_a_request_names_a_duration_or_an_end_or_neither():
    assert lease_end.asked(FREE, End(), NOON) == End()
    assert lease_end.asked(FREE, End(duration=9), NOON) == End(duration=9)
    assert lease_end.asked(FREE, End(NOON + HOUR), NOON) == End(NOON + HOUR)
    with pytest.raises(exceptions.BadRequest, match="not both"):
        End(NOON + HOUR, 9)


def test_the_end_of_a_new_lease_is_not_in_the_past():
    with pytest.raises(
        exceptions.EndInPast, match=r"lease\.ends_at would end the lease at 2026-11-28 12:00"
    ):
        lease_end.asked(FREE, End(NOON), NOON)


def test_an_operator_limits_how_long_leases_last():
    assert lease_end.asked(DAY_AT_MOST, End(duration=24 * 3600), NOON).duration == 24 * 3600
    # A clock that is a little ahead is no error.
    within = End(NOON + 24 * HOUR + MINUTE)
    assert lease_end.asked(DAY_AT_MOST, within, NOON) == within
    for beyond in (End(duration=24 * 3600 + 1), End(NOON + 24 * HOUR + 2 * MINUTE)):
        with pytest.raises(exceptions.EndTooLate, match="at most 1 d are allowed"):
            lease_end.asked(DAY_AT_MOST, beyond, NOON)


def test_where_leases_have_to_end_a_request_without_one_is_refused_or_gets_the_default():
    with pytest.raises(exceptions.EndMissing, match="after 1 d at most"):
        lease_end.asked(DAY_AT_MOST, End(), NOON)
    assert lease_end.asked(EndPolicy(24 * 3600, 3600), End(), NOON) == End(duration=3600)
    assert lease_end.asked(EndPolicy(0, 3600), End(), NOON) == End(duration=3600)


def test_the_lease_of_a_plain_server_gets_the_default_or_the_longest_duration():
    assert lease_end.of_plain_server(FREE) == End()
    assert lease_end.of_plain_server(DAY_AT_MOST) == End(duration=24 * 3600)
    assert lease_end.of_plain_server(EndPolicy(24 * 3600, 3600)) == End(duration=3600)


def test_an_end_is_postponed_or_brought_forward():
    before = lease(ends_at=NOON + HOUR, duration=2 * 3600)
    assert lease_end.changed(FREE, before, End(NOON + 3 * HOUR), NOON).ends_at == NOON + 3 * HOUR
    assert lease_end.changed(FREE, before, End(NOON + MINUTE), NOON).ends_at == NOON + MINUTE
    # It has had its GPUs for an hour.
    longer = lease_end.changed(FREE, before, End(duration=5 * 3600), NOON)
    assert (longer.ends_at, longer.duration) == (NOON + 4 * HOUR, 5 * 3600)
    without = lease_end.changed(FREE, before, End(), NOON)
    assert (without.ends_at, without.duration) == (None, None)


def test_the_longest_duration_counts_from_when_it_got_its_gpus():
    before = lease(ends_at=NOON + HOUR)
    latest = NOON + 23 * HOUR
    assert lease_end.changed(DAY_AT_MOST, before, End(latest), NOON).ends_at == latest
    with pytest.raises(exceptions.EndTooLate, match="until 2026-11-29 11:00 UTC"):
        lease_end.changed(DAY_AT_MOST, before, End(latest + 2 * MINUTE), NOON)
    with pytest.raises(exceptions.EndMissing):
        lease_end.changed(DAY_AT_MOST, before, End(), NOON)


def test_a_lease_that_has_lasted_for_longer_than_its_new_duration_is_not_ended_so():
    with pytest.raises(exceptions.EndInPast, match=r"lease\.duration would end the lease at"):
        lease_end.changed(FREE, lease(), End(duration=60), NOON)


def test_a_lease_that_waits_gets_another_duration():
    waiting = lease(Status.QUEUED, duration=60)
    changed = lease_end.changed(FREE, waiting, End(duration=7200), NOON)
    assert (changed.duration, changed.ends_at) == (7200, None)


def test_a_lease_that_is_over_gets_no_other_end():
    with pytest.raises(exceptions.EndIsOver, match="lease l is RELEASING, so its end"):
        lease_end.changed(FREE, lease(Status.RELEASING), End(duration=7200), NOON)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (90, "1 min 30 s"), (28800, "8 h"), (129600, "1 d 12 h")],
)
def test_durations_are_written_in_units(seconds, text):
    assert lease_end.span(seconds) == text
