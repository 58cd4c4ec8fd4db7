# SPDX-License-Identifier: Apache-2.0
"""The outbox does jobs in order in a thread of its own, and nobody waits for it."""

from __future__ import annotations

import threading

import pytest

from gsaas.metrics import counted
from gsaas.notifications.outbox import Outbox


def dropped(reason: str) -> float:
    return counted.NOTIFICATIONS_DROPPED.labels(reason)._value.get()


def test_jobs_are_done_in_order_in_another_thread():
    outbox, done = Outbox(10), []
    for number in range(5):
        outbox.put(lambda number=number: done.append((number, threading.current_thread())))
    outbox.close()
    assert [number for number, _ in done] == list(range(5))
    assert threading.current_thread() not in {thread for _, thread in done}


def test_no_thread_is_started_before_the_first_job():
    before = threading.active_count()
    Outbox(10).close()
    assert threading.active_count() == before


def test_while_a_job_waits_for_the_bus_no_caller_does_and_what_does_not_fit_is_counted():
    bus, started, done = threading.Event(), threading.Event(), []
    outbox, before = Outbox(2), dropped("buffer-full")

    def wait_for_the_bus():
        started.set()
        bus.wait()

    outbox.put(wait_for_the_bus)
    assert started.wait(30)
    for number in range(5):  # returns although the thread waits
        outbox.put(lambda number=number: done.append(number))
    assert dropped("buffer-full") - before == 3
    bus.set()
    outbox.close(30)
    assert done == [0, 1]


def test_a_job_that_fails_is_counted_and_the_next_one_is_done(caplog: pytest.LogCaptureFixture):
    outbox, done, before = Outbox(10), [], dropped("error")
    outbox.put(lambda: 1 / 0)
    outbox.put(lambda: done.append(1))
    outbox.close()
    assert done == [1]
    assert dropped("error") - before == 1
    assert "ZeroDivisionError" in caplog.text
