# SPDX-License-Identifier: Apache-2.0
"""What threads write while one of them is writing is written together, and each gets what is its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

import pytest
from oslo_db import exception as db_exception

from gsaas.db.database import OvertakenError
from gsaas.gpgpums import group_commit
from gsaas.gpgpums.group_commit import MOST, MOST_PAUSE, GroupCommit, Turn

PATIENCE = 30
MANY = 5


class Writer:
    """Writes calls that are numbers as their squares; the first group is not done before `go`."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.threads: list[threading.Thread] = []
        self.go = threading.Event()
        self.answer: Callable[[int], int | Exception] = lambda call: call**2

    def __call__(self, calls: Sequence[int]) -> list[int | Exception]:
        self.groups.append(list(calls))
        self.threads.append(threading.current_thread())
        if len(self.groups) == 1:
            assert self.go.wait(PATIENCE)
        return [self.answer(call) for call in calls]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody loses patience, however busy the machine is."""
    monkeypatch.setattr(group_commit, "PATIENCE", PATIENCE)


@pytest.fixture
def writer() -> Writer:
    return Writer()


@pytest.fixture
def group(writer: Writer) -> GroupCommit[int, int]:
    return GroupCommit(writer)


@pytest.fixture
def other() -> Writer:
    """A second writer, which waits for nothing."""
    other = Writer()
    other.go.set()
    return other


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2 * MOST) as threads:
        yield threads


def start(
    threads: ThreadPoolExecutor, group: GroupCommit[int, int], writer: Writer, many: int = MANY
) -> list[Future[int]]:
    """Start a call 0 that is being written, and then so *many* others, one after the other, which wait for it."""
    started = [threads.submit(group.together, 0)]
    until(lambda: writer.groups == [[0]])
    for call in range(1, many + 1):
        started.append(threads.submit(group.together, call))
        until(lambda: len(group._waiting) == len(started) - 1)
    return started


def in_turns(*writers: Writer) -> list[GroupCommit[int, int]]:
    """Return a group for each of *writers*, all with one turn."""
    turn = Turn()
    return [GroupCommit(writer, turn=turn) for writer in writers]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_call_with_no_other_is_written_at_once(writer: Writer, group: GroupCommit[int, int]):
    writer.go.set()

    assert [group.together(3), group.together(4)] == [9, 16]

    assert writer.groups == [[3], [4]]


def test_calls_that_come_while_one_is_written_are_written_together_in_their_order(
    writer: Writer, group: GroupCommit[int, int], threads: ThreadPoolExecutor
):
    started = start(threads, group, writer)
    writer.go.set()

    assert [one.result(PATIENCE) for one in started] == [0, 1, 4, 9, 16, 25]
    assert writer.groups == [[0], [1, 2, 3, 4, 5]]


def test_a_group_that_would_be_smaller_than_the_last_one_waits_a_moment_for_the_others(
    writer: Writer, threads: ThreadPoolExecutor
):
    pauses: list[float] = []
    coming: list[int] = []
    came: list[Future[int]] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        for call in coming:
            came.append(threads.submit(group.together, call))
            until(lambda: len(group._waiting) == 1 + len(came))
        coming.clear()

    group = GroupCommit(writer, sleep)
    started = start(threads, group, writer)
    writer.go.set()
    for one in started:
        one.result(PATIENCE)
    assert pauses == []

    coming[:] = [7, 8]
    assert group.together(6) == 36

    assert [one.result(PATIENCE) for one in came] == [49, 64]
    assert writer.groups[2:] == [[6, 7, 8]]
    [pause] = pauses
    assert 0 < pause <= MOST_PAUSE


def test_a_caller_that_goes_on_alone_waits_once_at_most(
    writer: Writer, threads: ThreadPoolExecutor
):
    pauses: list[float] = []
    group = GroupCommit(writer, pauses.append)
    started = start(threads, group, writer)
    writer.go.set()
    for one in started:
        one.result(PATIENCE)

    assert [group.together(call) for call in range(5)] == [0, 1, 4, 9, 16]

    assert len(pauses) == 1


def test_no_group_is_larger_than_the_most(
    writer: Writer, group: GroupCommit[int, int], threads: ThreadPoolExecutor
):
    started = start(threads, group, writer, many=MOST + 2)
    writer.go.set()

    assert [one.result(PATIENCE) for one in started] == [call**2 for call in range(MOST + 3)]
    assert [len(calls) for calls in writer.groups] == [1, MOST, 2]


def test_each_group_is_written_by_one_of_its_own_threads(
    writer: Writer, group: GroupCommit[int, int], threads: ThreadPoolExecutor
):
    started = start(threads, group, writer)
    writer.go.set()
    for one in started:
        one.result(PATIENCE)

    assert writer.threads[0] is not writer.threads[1]


def test_an_exception_is_raised_to_its_own_caller_alone(
    writer: Writer, group: GroupCommit[int, int], threads: ThreadPoolExecutor
):
    started = start(threads, group, writer)
    writer.answer = lambda call: ValueError(call) if call == 2 else call
    writer.go.set()

    with pytest.raises(ValueError, match="2"):
        started[2].result(PATIENCE)
    assert [started[place].result(PATIENCE) for place in (0, 1, 3, 4, 5)] == [0, 1, 3, 4, 5]


def fail(error: BaseException) -> Callable[[int], int]:
    """Return what a writer answers when it fails at any call but the first."""

    def answer(call: int) -> int:
        if call:
            raise error
        return call

    return answer


def test_after_an_error_of_the_group_each_caller_tries_again_alone(
    writer: Writer, group: GroupCommit[int, int], threads: ThreadPoolExecutor
):
    started = start(threads, group, writer)
    writer.answer = fail(db_exception.DBDuplicateEntry())
    writer.go.set()

    for one in started[1:]:
        with pytest.raises(OvertakenError):
            one.result(PATIENCE)


def test_every_caller_of_a_group_learns_that_the_database_is_away(
    writer: Writer, group: GroupCommit[int, int], threads: ThreadPoolExecutor
):
    started = start(threads, group, writer)
    writer.answer = fail(db_exception.DBConnectionError())
    writer.go.set()

    for one in started[1:]:
        with pytest.raises(db_exception.DBConnectionError):
            one.result(PATIENCE)


def test_the_error_of_a_single_call_is_its_own(writer: Writer, group: GroupCommit[int, int]):
    writer.go.set()
    writer.answer = fail(db_exception.DBDuplicateEntry())

    for write in (group.together, group.alone):
        with pytest.raises(db_exception.DBDuplicateEntry):
            write(1)


def test_a_call_alone_waits_for_no_group(
    writer: Writer, group: GroupCommit[int, int], threads: ThreadPoolExecutor
):
    started = start(threads, group, writer)

    assert group.alone(7) == 49

    assert not any(one.done() for one in started)
    writer.go.set()


def test_nobody_waits_for_a_thread_that_was_ended(
    writer: Writer, group: GroupCommit[int, int], threads: ThreadPoolExecutor
):
    started = start(threads, group, writer)
    writer.answer = fail(SystemExit())
    writer.go.set()

    with pytest.raises(SystemExit):
        started[1].result(PATIENCE)
    for one in started[2:]:
        with pytest.raises(RuntimeError):
            one.result(PATIENCE)
    writer.answer = lambda call: call
    assert group.together(8) == 8


def test_a_group_that_takes_long_keeps_no_other_waiting(
    writer: Writer,
    group: GroupCommit[int, int],
    threads: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(group_commit, "PATIENCE", 0.01)
    stuck = threads.submit(group.together, 0)
    until(lambda: writer.groups == [[0]])

    assert [group.together(call) for call in (2, 3)] == [4, 9]

    assert not stuck.done()
    writer.go.set()
    assert stuck.result(PATIENCE) == 0
    assert group._leaders == 0
    assert group.together(4) == 16


def test_groups_that_share_a_turn_are_written_one_after_the_other(
    writer: Writer, other: Writer, threads: ThreadPoolExecutor
):
    group, second = in_turns(writer, other)
    started = [threads.submit(group.together, 0)]
    until(lambda: writer.groups == [[0]])
    for call in (1, 2, 3):
        started.append(threads.submit(second.together, call))
        until(lambda call=call: len(second._waiting) == call)
    assert other.groups == []
    writer.go.set()

    assert [one.result(PATIENCE) for one in started] == [0, 1, 4, 9]

    assert other.groups == [[1, 2, 3]]


def test_a_group_that_takes_long_keeps_none_waiting_that_shares_its_turn(
    writer: Writer, other: Writer, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(group_commit, "PATIENCE", 0.01)
    group, second = in_turns(writer, other)
    stuck = threads.submit(group.together, 0)
    until(lambda: writer.groups == [[0]])

    assert [second.together(call) for call in (2, 3)] == [4, 9]

    assert not stuck.done()
    writer.go.set()
    assert stuck.result(PATIENCE) == 0


def test_a_group_that_has_the_turn_for_long_is_waited_for_once(
    writer: Writer, other: Writer, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(group_commit, "PATIENCE", 100 * PATIENCE)
    group, second = in_turns(writer, other)
    stuck = threads.submit(group.together, 0)
    until(lambda: writer.groups == [[0]])
    monkeypatch.setattr(group._turn, "_since", group._turn._since - group_commit.PATIENCE)

    # Although its own patience is not lost.
    assert threads.submit(second.together, 2).result(PATIENCE / 2) == 4

    writer.go.set()
    assert stuck.result(PATIENCE) == 0


@pytest.mark.parametrize("error", [db_exception.DBConnectionError(), SystemExit()])
def test_a_group_that_fails_ends_its_turn(
    writer: Writer, other: Writer, threads: ThreadPoolExecutor, error: BaseException
):
    group, second = in_turns(writer, other)
    writer.answer = fail(error)
    writer.go.set()
    with pytest.raises(type(error)):
        threads.submit(group.together, 1).result(PATIENCE)

    assert not group._turn._lock.locked()
    assert threads.submit(second.together, 2).result(PATIENCE) == 4


def test_a_leader_whose_call_another_has_written_writes_nothing(
    writer: Writer, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
):
    """Another call loses patience while the leader pauses for it, and takes the leader's call with it."""
    others: list[Future[int]] = []

    def sleep(_: float) -> None:
        if not others:
            monkeypatch.setattr(group_commit, "PATIENCE", 0.01)
            others.append(threads.submit(group.together, 7))
            assert others[0].result(PATIENCE) == 49

    group = GroupCommit(writer, sleep)
    started = start(threads, group, writer)
    writer.go.set()
    for one in started:
        one.result(PATIENCE)

    assert group.together(6) == 36

    assert writer.groups[2:] == [[6, 7]]
    assert group._leaders == 0


def test_nobody_waits_for_a_thread_that_was_ended_in_its_pause(
    writer: Writer, threads: ThreadPoolExecutor
):
    pauses: list[float] = []

    def end(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1:
            raise SystemExit

    group = GroupCommit(writer, end)
    started = start(threads, group, writer)
    writer.go.set()
    for one in started:
        one.result(PATIENCE)

    with pytest.raises(SystemExit):
        group.together(6)

    assert group.together(7) == 49
    assert writer.groups[2:] == [[7]]


@pytest.mark.parametrize("leads", [False, True])
def test_nobody_waits_for_a_thread_that_was_ended_while_it_waited(
    writer: Writer,
    group: GroupCommit[int, int],
    threads: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    leads: bool,
):
    """A signal handler ends it, before it is its turn to lead or just then."""
    waits = threading.Event()

    class Interrupted:
        def __init__(self) -> None:
            self.told: SimpleQueue[object] = SimpleQueue()

        def put(self, told: object) -> None:
            self.told.put(told)

        def get(self, timeout: float) -> object:
            waits.set()
            if leads:
                self.told.get(timeout=timeout)
            raise SystemExit

    first = threads.submit(group.together, 0)
    until(lambda: writer.groups == [[0]])
    with monkeypatch.context() as patched:
        patched.setattr(group_commit, "SimpleQueue", Interrupted)
        ended = threads.submit(group.together, 1)
        assert waits.wait(PATIENCE)
    last = threads.submit(group.together, 2)
    until(lambda: 2 in [caller.call for caller in group._waiting])
    writer.go.set()

    with pytest.raises(SystemExit):
        ended.result(PATIENCE)
    assert [first.result(PATIENCE), last.result(PATIENCE)] == [0, 4]
    assert writer.groups == [[0], [2]]
