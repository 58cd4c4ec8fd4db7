# SPDX-License-Identifier: Apache-2.0
"""When requests in the queue are served, as far as the ends of leases tell."""

from __future__ import annotations

import datetime

from gsaas.gpgpums.policies.first_fit import FirstFit
from gsaas.gpgpums.pool import Pool
from gsaas.gpgpums.queue import QueuedRequest, expected
from gsaas.objects.gpu import Gpu
from gsaas.objects.placement import Share
from gsaas.objects.request import Request

NOON = datetime.datetime(2026, 11, 28, 12)
HOUR = datetime.timedelta(hours=1)
MEMORY = 8000


def busy(number: int) -> Pool:
    """So many GPUs, each of which a lease has."""
    return Pool(
        [
            Gpu(f"GPU-{index}", "host", index, MEMORY, used_mb=MEMORY, exclusive=True, leases=1)
            for index in range(number)
        ]
    )


def ends(*hours: float) -> list[tuple[datetime.datetime, Share]]:
    """The lease on GPU n ends after the nth of these times."""
    return [(NOON + HOUR * hour, Share(f"GPU-{n}", MEMORY)) for n, hour in enumerate(hours)]


def waits(name: str, count: int, joined: int = 0, **more) -> QueuedRequest:
    return QueuedRequest(
        name, Request(count), FirstFit(), "p", 0, NOON - HOUR + HOUR / 60 * joined, **more
    )


def test_a_request_is_served_when_the_last_lease_ends_that_it_waits_for():
    pool = busy(3)
    before = list(pool)
    assert expected(pool, [waits("a", 2)], ends(3, 1, 2), NOON) == {"a": NOON + 2 * HOUR}
    assert list(pool) == before


def test_requests_are_served_in_order_each_after_the_one_before_it():
    queue = [waits("second", 1, joined=2), waits("first", 2, joined=1)]
    assert expected(busy(3), queue, ends(1, 2, 3), NOON) == {
        "first": NOON + 2 * HOUR,
        "second": NOON + 3 * HOUR,
    }


def test_a_request_that_is_served_returns_its_gpus_when_it_is_to_end():
    queue = [waits("first", 1, joined=1, duration=1800), waits("second", 1, joined=2)]
    assert expected(busy(1), queue, ends(1), NOON) == {
        "first": NOON + HOUR,
        "second": NOON + 1.5 * HOUR,
    }


def test_nothing_is_said_of_requests_that_wait_for_a_lease_without_an_end():
    queue = [waits("first", 2, joined=1), waits("second", 1, joined=2)]
    assert expected(busy(2), queue, ends(1), NOON) == {}


def test_an_end_that_has_passed_is_one_that_comes_at_once():
    assert expected(busy(1), [waits("a", 1)], ends(-1), NOON) == {"a": NOON}


def test_what_was_returned_after_the_ends_were_read_is_free():
    """Another thread's commit is in the pool, and not yet in what this one has read of the database."""
    pool = busy(2)
    pool.put(pool["GPU-0"].release(MEMORY, generation=1))
    assert expected(pool, [waits("a", 2)], ends(1, 2), NOON) == {"a": NOON + 2 * HOUR}


def test_a_request_that_ends_before_its_turn_is_not_served_and_keeps_nobody_waiting():
    queue = [waits("over", 1, joined=1, ends_at=NOON + HOUR / 2), waits("next", 1, joined=2)]
    assert expected(busy(1), queue, ends(1), NOON) == {"next": NOON + HOUR}


def test_a_lease_that_ends_when_time_does_is_waited_for_all_the_same():
    """Its owner may name that end, and whoever waits behind him asks when it is his turn."""
    never = [(datetime.datetime.max, Share("GPU-0", MEMORY))]
    queue = [waits("first", 1, joined=1, duration=1800), waits("second", 1, joined=2)]
    assert expected(busy(1), queue, never, NOON) == {"first": datetime.datetime.max}


def test_gpus_that_are_gone_help_nobody():
    later = [*ends(2), (NOON + HOUR, Share("GPU-gone", MEMORY))]
    assert expected(busy(1), [waits("a", 1)], later, NOON) == {"a": NOON + 2 * HOUR}
