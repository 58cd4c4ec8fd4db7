# SPDX-License-Identifier: Apache-2.0
"""What threads write while one of them is writing is written together, and each gets what is its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from oslo_db import exception as db_exception

from gsaas.db.database import OvertakenError
from gsaas.gpgpums.batches import MOST, MOST_PAUSE, Batches

WITHIN = 30
MANY = 5


class Writer:
    """Writes calls that are numbers as their squares; the first batches is not done before `go`."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.threads: list[threading.Thread] = []
        self.go = threading.Event()
        self.answer: Callable[[int], int | Exception] = lambda call: call**2

    def __call__(self, calls: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(calls))
        self.threads.append(threading.current_thread())
        if len(self.batches) == 1:
            assert self.go.wait(WITHIN)
        return [self.answer(call) for call in calls]


@pytest.fixture
def writer() -> Writer:
    return Writer()


@pytest.fixture
def batches(writer: Writer) -> Batches[int, int]:
    return Batches(writer)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2 * MOST) as threads:
        yield threads


def start(
    threads: ThreadPoolExecutor, batches: Batches[int, int], writer: Writer, many: int = MANY
) -> list[Future[int]]:
    """Start a call 0 that is being written, and then so *many* others, one after the other, which wait for it."""
    started = [threads.submit(batches.commit, 0)]
    until(lambda: writer.batches == [[0]])
    for call in range(1, many + 1):
        started.append(threads.submit(batches.commit, call))
        until(lambda: len(batches._waiting) == len(started) - 1)
    return started


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_call_with_no_other_is_written_at_once(writer: Writer, batches: Batches[int, int]):
    writer.go.set()

    assert [batches.commit(3), batches.commit(4)] == [9, 16]

    assert writer.batches == [[3], [4]]


def test_calls_that_come_while_one_is_written_are_written_together_in_their_order(
    writer: Writer, batches: Batches[int, int], threads: ThreadPoolExecutor
):
    started = start(threads, batches, writer)
    writer.go.set()

    assert [one.result(WITHIN) for one in started] == [0, 1, 4, 9, 16, 25]
    assert writer.batches == [[0], [1, 2, 3, 4, 5]]
    assert (
        writer.threads[0] is not writer.threads[1]
    )  # each batch is written by one of its own threads


def test_a_batch_that_would_be_smaller_than_the_last_one_waits_a_moment_for_the_others(
    writer: Writer, threads: ThreadPoolExecutor
):
    pauses: list[float] = []
    coming: list[int] = []
    came: list[Future[int]] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        for call in coming:
            came.append(threads.submit(batches.commit, call))
            until(lambda: len(batches._waiting) == 1 + len(came))
        coming.clear()

    batches = Batches(writer, sleep=sleep)
    started = start(threads, batches, writer)
    writer.go.set()
    for one in started:
        one.result(WITHIN)
    assert pauses == []

    coming[:] = [7, 8]
    assert batches.commit(6) == 36

    assert [one.result(WITHIN) for one in came] == [49, 64]
    assert writer.batches[2:] == [[6, 7, 8]]
    [pause] = pauses
    assert 0 < pause <= MOST_PAUSE


def test_a_caller_that_goes_on_alone_waits_once_at_most(
    writer: Writer, threads: ThreadPoolExecutor
):
    pauses: list[float] = []
    batches = Batches(writer, sleep=pauses.append)
    started = start(threads, batches, writer)
    writer.go.set()
    for one in started:
        one.result(WITHIN)

    assert [batches.commit(call) for call in range(5)] == [0, 1, 4, 9, 16]

    assert len(pauses) == 1


def test_no_batch_is_larger_than_the_most(
    writer: Writer, batches: Batches[int, int], threads: ThreadPoolExecutor
):
    started = start(threads, batches, writer, many=MOST + 2)
    writer.go.set()

    assert [one.result(WITHIN) for one in started] == [call**2 for call in range(MOST + 3)]
    assert [len(calls) for calls in writer.batches] == [1, MOST, 2]


def test_a_batch_has_calls_of_one_kind_and_that_of_the_longest_waiting_call_comes_first(
    writer: Writer, threads: ThreadPoolExecutor
):
    batches = Batches(writer, most=lambda: 2, kind=lambda call: call % 2)
    started = start(threads, batches, writer, many=6)
    writer.go.set()

    assert [one.result(WITHIN) for one in started] == [call**2 for call in range(7)]
    assert writer.batches == [[0], [1, 3], [2, 4], [5], [6]]


def test_an_exception_is_raised_to_its_own_caller_alone(
    writer: Writer, batches: Batches[int, int], threads: ThreadPoolExecutor
):
    started = start(threads, batches, writer)
    writer.answer = lambda call: ValueError(call) if call == 2 else call
    writer.go.set()

    with pytest.raises(ValueError, match="2"):
        started[2].result(WITHIN)
    assert [started[place].result(WITHIN) for place in (0, 1, 3, 4, 5)] == [0, 1, 3, 4, 5]


def fail(error: BaseException) -> Callable[[int], int]:
    """Return what a writer answers when it fails at any call but the first."""

    def answer(call: int) -> int:
        if call:
            raise error
        return call

    return answer


def test_after_an_error_of_the_batch_each_caller_tries_again_alone(
    writer: Writer, batches: Batches[int, int], threads: ThreadPoolExecutor
):
    started = start(threads, batches, writer)
    writer.answer = fail(db_exception.DBDuplicateEntry())
    writer.go.set()

    for one in started[1:]:
        with pytest.raises(OvertakenError):
            one.result(WITHIN)


def test_every_caller_of_a_batch_learns_that_the_database_is_away(
    writer: Writer, batches: Batches[int, int], threads: ThreadPoolExecutor
):
    started = start(threads, batches, writer)
    writer.answer = fail(db_exception.DBConnectionError())
    writer.go.set()

    for one in started[1:]:
        with pytest.raises(db_exception.DBConnectionError):
            one.result(WITHIN)
    writer.answer = lambda call: call
    assert batches.commit(8) == 8


def test_the_error_of_a_single_call_is_its_own(writer: Writer, batches: Batches[int, int]):
    writer.go.set()
    writer.answer = fail(db_exception.DBDuplicateEntry())

    with pytest.raises(db_exception.DBDuplicateEntry):
        batches.commit(1)


def test_nobody_waits_for_a_thread_that_was_ended(
    writer: Writer, batches: Batches[int, int], threads: ThreadPoolExecutor
):
    started = start(threads, batches, writer)
    writer.answer = fail(SystemExit())
    writer.go.set()

    errors = [type(one.exception(WITHIN)) for one in started[1:]]
    assert sorted(errors, key=str) == [*[RuntimeError] * (MANY - 1), SystemExit]
    writer.answer = lambda call: call
    assert batches.commit(8) == 8


def test_nobody_waits_for_a_thread_that_was_ended_in_its_pause(
    writer: Writer, threads: ThreadPoolExecutor
):
    pauses: list[float] = []

    def end(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1:
            raise SystemExit

    batches = Batches(writer, sleep=end)
    started = start(threads, batches, writer)
    writer.go.set()
    for one in started:
        one.result(WITHIN)

    with pytest.raises(SystemExit):
        batches.commit(6)

    assert batches.commit(7) == 49
    assert writer.batches[2:] == [[7]]


def test_nobody_writes_for_a_thread_that_was_ended_while_it_waited(
    writer: Writer,
    batches: Batches[int, int],
    threads: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
):
    """A signal handler ends it."""
    first = threads.submit(batches.commit, 0)
    until(lambda: writer.batches == [[0]])

    def end(_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(batches._changed, "wait_for", end)
        with pytest.raises(SystemExit):
            threads.submit(batches.commit, 1).result(WITHIN)
    last = threads.submit(batches.commit, 2)
    until(lambda: [caller.call for caller in batches._waiting] == [2])
    writer.go.set()

    assert [first.result(WITHIN), last.result(WITHIN)] == [0, 4]
    assert writer.batches == [[0], [2]]
