"""Turns: one per key at a time, none lost, none doubled."""

from __future__ import annotations

import threading

from gsaas.engine.workqueue import WorkQueue


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_keys_are_taken_in_the_order_they_were_added():
    worklist = WorkQueue()
    for key in "abc":
        worklist.add(key)
    assert [worklist.take() for _ in range(3)] == ["a", "b", "c"]


def test_a_key_added_twice_before_its_turn_has_one_turn():
    worklist = WorkQueue()
    for key in ("a", "a", "b"):
        worklist.add(key)
    assert [worklist.take() for _ in range(2)] == ["a", "b"]


def test_a_key_added_during_its_turn_has_another_one_after_it_and_not_before():
    worklist = WorkQueue()
    worklist.add("a")
    assert worklist.take() == "a"
    worklist.add("a")
    worklist.add("b")
    assert worklist.take() == "b"
    worklist.done("a")
    assert worklist.take() == "a"


def test_a_key_added_for_later_waits_for_its_time():
    clock = Clock()
    worklist = WorkQueue(clock)
    worklist.add("later", after=10)
    worklist.add("now")
    assert worklist.take() == "now"
    clock.now = 10
    assert worklist.take() == "later"


def test_adding_a_key_for_now_brings_it_forward_and_leaves_one_turn():
    clock = Clock()
    worklist = WorkQueue(clock)
    worklist.add("a", after=10)
    worklist.add("a")
    assert worklist.take() == "a"
    worklist.done("a")
    clock.now = 10
    worklist.add("b")
    assert worklist.take() == "b"


def test_adding_a_key_for_later_does_not_delay_it():
    worklist = WorkQueue(Clock())
    worklist.add("a")
    worklist.add("a", after=10)
    assert worklist.take() == "a"


def test_a_worker_that_waits_is_told_of_a_new_key_and_of_the_end():
    worklist, taken = WorkQueue(), []

    def work():
        while (key := worklist.take()) is not None:
            taken.append(key)
            worklist.done(key)
            worklist.close()

    worker = threading.Thread(target=work)
    worker.start()
    worklist.add("a")
    worker.join(timeout=60)
    assert not worker.is_alive()
    assert taken == ["a"]


def test_many_workers_never_hold_the_same_key_and_serve_every_request():
    worklist, guard, held, turns = WorkQueue(), threading.Lock(), set(), []
    served = threading.Event()

    def work():
        while (key := worklist.take()) is not None:
            with guard:
                assert key not in held
                held.add(key)
            with guard:
                held.remove(key)
                turns.append(key)
                if {"a", "b", "c", "last"} <= set(turns):
                    served.set()
            worklist.done(key)

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for _ in range(200):
        for key in "abc":
            worklist.add(key)
    worklist.add("last")
    assert served.wait(60)
    worklist.close()
    for worker in workers:
        worker.join()
