# SPDX-License-Identifier: Apache-2.0
"""Each key is processed by one worker at a time; none is lost, none is processed twice."""

from __future__ import annotations

import threading

from gsaas.engine.workqueue import WorkQueue


class Clock:
    """A clock that a test sets, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_keys_are_taken_in_the_order_they_were_added():
    queue = WorkQueue()
    for key in "abc":
        queue.add(key)
    assert [queue.get() for _ in range(3)] == ["a", "b", "c"]


def test_a_key_added_twice_before_it_is_processed_is_processed_once():
    queue = WorkQueue()
    for key in ("a", "a", "b"):
        queue.add(key)
    assert [queue.get() for _ in range(2)] == ["a", "b"]


def test_a_key_added_while_it_is_processed_is_processed_again_after_that():
    queue = WorkQueue()
    queue.add("a")
    assert queue.get() == "a"
    queue.add("a")
    queue.add("b")
    assert queue.get() == "b"
    queue.done("a")
    assert queue.get() == "a"


def test_a_key_added_for_later_waits_for_its_time():
    clock = Clock()
    queue = WorkQueue(clock)
    queue.add("later", after=10)
    queue.add("now")
    assert queue.get() == "now"
    clock.now = 10
    assert queue.get() == "later"


def test_adding_a_key_for_now_brings_it_forward_and_it_is_processed_once():
    clock = Clock()
    queue = WorkQueue(clock)
    queue.add("a", after=10)
    queue.add("a")
    assert queue.get() == "a"
    queue.done("a")
    clock.now = 10
    queue.add("b")
    assert queue.get() == "b"


def test_adding_a_key_for_later_does_not_delay_it():
    queue = WorkQueue(Clock())
    queue.add("a")
    queue.add("a", after=10)
    assert queue.get() == "a"


def test_a_worker_that_waits_wakes_up_for_a_new_key_and_for_the_end():
    queue, taken = WorkQueue(), []

    def work():
        while (key := queue.get()) is not None:
            taken.append(key)
            queue.done(key)
            queue.close()

    worker = threading.Thread(target=work)
    worker.start()
    queue.add("a")
    worker.join(timeout=60)
    assert not worker.is_alive()
    assert taken == ["a"]


def test_many_workers_never_process_the_same_key_at_once_and_process_every_key():
    queue, lock, processing, processed = WorkQueue(), threading.Lock(), set(), []
    served = threading.Event()

    def work():
        while (key := queue.get()) is not None:
            with lock:
                assert key not in processing
                processing.add(key)
            with lock:
                processing.remove(key)
                processed.append(key)
                if {"a", "b", "c", "last"} <= set(processed):
                    served.set()
            queue.done(key)

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for _ in range(200):
        for key in "abc":
            queue.add(key)
    queue.add("last")
    assert served.wait(60)
    queue.close()
    for worker in workers:
        worker.join()
