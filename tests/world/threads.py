# SPDX-License-Identifier: Apache-2.0
"""What modules take from `threading`, `queue`, `concurrent.futures`, `select` and `os`, on the baton.

A task that was killed may release what it does not hold any more; nobody is left to mind.
"""

from __future__ import annotations

import os
import queue
import select
import threading
from collections.abc import Callable, Iterable
from typing import Any

from tests.world import baton
from tests.world.baton import Task


def _until(timeout: float | None) -> float | None:
    return None if timeout is None or timeout < 0 else baton.here().now + timeout


class Lock:
    """`threading.Lock`."""

    def __init__(self) -> None:
        self._held = False
        self._waiting: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = baton.here()
        scheduler.point()
        until = _until(timeout)
        while self._held:
            if not blocking or (not scheduler.wait(self._waiting, until) and self._held):
                return False
        self._held = True
        return True

    def release(self) -> None:
        self._held = False
        if baton.scheduler is not None:
            baton.scheduler.wake(self._waiting)

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock:
    """`threading.RLock`."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._owner: Task | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = baton.here().current
        if self._owner is not me:
            if not self._lock.acquire(blocking, timeout):
                return False
            self._owner = me
        self._count += 1
        return True

    def release(self) -> None:
        self._count = max(0, self._count - 1)
        if self._count == 0:
            self._owner = None
            self._lock.release()

    def release_all(self) -> int:
        count, self._count, self._owner = self._count, 0, None
        self._lock.release()
        return count

    def restore(self, count: int) -> None:
        self._lock.acquire()
        self._owner, self._count = baton.here().current, count

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition:
    """`threading.Condition`."""

    def __init__(self, lock: Lock | RLock | None = None) -> None:
        self._lock = RLock() if lock is None else lock
        self._waiting: list[Task] = []
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        count = 1
        if isinstance(self._lock, RLock):
            count = self._lock.release_all()
        else:
            self._lock.release()
        woken = baton.here().wait(self._waiting, _until(timeout))
        if isinstance(self._lock, RLock):
            self._lock.restore(count)
        else:
            self._lock.acquire()
        return woken

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        until = _until(timeout)
        while not (result := predicate()):
            left = None if until is None else until - baton.here().now
            if left is not None and left <= 0:
                return predicate()
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        baton.here().wake(self._waiting, n)

    def notify_all(self) -> None:
        baton.here().wake(self._waiting)


class Event:
    """`threading.Event`."""

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[Task] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        if baton.scheduler is not None:
            baton.scheduler.wake(self._waiting)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        scheduler = baton.here()
        scheduler.point()
        if not self._set:
            scheduler.wait(self._waiting, _until(timeout))
        return self._set


class Semaphore:
    """`threading.Semaphore`."""

    def __init__(self, value: int = 1) -> None:
        self._value = value
        self._waiting: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        scheduler = baton.here()
        scheduler.point()
        until = _until(timeout)
        while self._value <= 0:
            if not blocking or (not scheduler.wait(self._waiting, until) and self._value <= 0):
                return False
        self._value -= 1
        return True

    def release(self, n: int = 1) -> None:
        self._value += n
        if baton.scheduler is not None:
            baton.scheduler.wake(self._waiting)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Thread:
    """`threading.Thread`."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] = lambda: None,
        name: str = "thread",
        args: Iterable[Any] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name, self.daemon = name, daemon
        self._call = lambda: target(*args, **(kwargs or {}))
        self._task: Task | None = None

    @property
    def ident(self) -> int | None:
        return None if self._task is None else id(self._task)

    def run(self) -> None:
        self._call()

    def start(self) -> None:
        self._task = baton.here().spawn(self.name, self.run)
        self._task.handle = self

    def join(self, timeout: float | None = None) -> None:
        if self._task is not None:
            baton.here().join(self._task, timeout)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.ended


class Timer(Thread):
    """`threading.Timer`."""

    def __init__(
        self, interval: float, function: Callable[..., object], args: Iterable[Any] = ()
    ) -> None:
        super().__init__(target=self._later, name="timer")
        self._cancelled = Event()
        self._interval, self._function, self._args = interval, function, args

    def _later(self) -> None:
        if not self._cancelled.wait(self._interval):
            self._function(*self._args)

    def cancel(self) -> None:
        self._cancelled.set()


def current_thread() -> Any:
    return baton.here().current.handle


class SimpleQueue:
    """`queue.SimpleQueue`, and `queue.Queue`, whose bound makes `put_nowait` fail."""

    def __init__(self, maxsize: int = 0) -> None:
        self._most = maxsize
        self._items: list[Any] = []
        self._waiting: list[Task] = []

    def __class_getitem__(cls, _: object) -> type[SimpleQueue]:
        return cls

    def put(self, item: Any) -> None:
        if self._most and len(self._items) >= self._most:
            raise queue.Full
        self._items.append(item)
        baton.here().wake(self._waiting)

    put_nowait = put

    def empty(self) -> bool:
        return not self._items

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        until = _until(timeout)
        while not self._items:
            if not block or (not baton.here().wait(self._waiting, until) and not self._items):
                raise queue.Empty
        return self._items.pop(0)


class Future:
    """`concurrent.futures.Future`."""

    def __init__(self) -> None:
        self._done = Event()
        self._outcome: Any = None
        self._error: BaseException | None = None

    def run(self, call: Callable[[], Any]) -> None:
        try:
            self._outcome = call()
        except Exception as error:  # noqa: BLE001 - raised by `result`
            self._error = error
        self._done.set()

    def result(self, timeout: float | None = None) -> Any:
        if not self._done.wait(timeout):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._outcome


class ThreadPoolExecutor:
    """`concurrent.futures.ThreadPoolExecutor`, without the bound on its threads."""

    def __init__(self, max_workers: int | None = None, thread_name_prefix: str = "pool") -> None:
        self._name = thread_name_prefix

    def submit(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Future:
        future = Future()
        baton.here().spawn(self._name, lambda: future.run(lambda: call(*args, **kwargs)))
        return future

    def map(self, call: Callable[..., Any], *iterables: Iterable[Any]) -> Iterable[Any]:
        futures = [self.submit(call, *each) for each in zip(*iterables, strict=False)]
        return (each.result() for each in futures)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave its threads to end by themselves."""

    def __enter__(self) -> ThreadPoolExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


class Descriptor:
    """A file descriptor that can become readable."""

    def __init__(self) -> None:
        self.is_readable = False
        self.waiting: list[Task] = []

    def set(self) -> None:
        self.is_readable = True
        if baton.scheduler is not None:
            baton.scheduler.wake(self.waiting)


class Poll:
    """`select.poll`."""

    def __init__(self) -> None:
        self._registered: list[Descriptor] = []

    def register(self, descriptor: Descriptor, _mask: int = 0) -> None:
        self._registered.append(descriptor)

    def poll(self, milliseconds: float | None = None) -> list[tuple[Descriptor, int]]:
        scheduler = baton.here()
        scheduler.point()
        if not any(each.is_readable for each in self._registered):
            me = scheduler.current
            for each in self._registered:
                each.waiting.append(me)
            try:
                scheduler.wait(
                    until=None if milliseconds is None else scheduler.now + milliseconds / 1000
                )
            finally:
                for each in self._registered:
                    if me in each.waiting:
                        each.waiting.remove(me)
        return [(each, select.POLLIN) for each in self._registered if each.is_readable]


class Facade:
    """A module, some of whose names mean something else."""

    def __init__(self, real: Any, **replaced: Any) -> None:
        self.__dict__.update(replaced)
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


THREADING = Facade(
    threading,
    Lock=Lock,
    RLock=RLock,
    Condition=Condition,
    Event=Event,
    Semaphore=Semaphore,
    BoundedSemaphore=Semaphore,
    Thread=Thread,
    Timer=Timer,
    current_thread=current_thread,
)
QUEUE = Facade(queue, SimpleQueue=SimpleQueue, Queue=SimpleQueue)
SELECT = Facade(select, poll=Poll)


def _eventfd(*_: int) -> Descriptor:
    return Descriptor()


def _eventfd_write(descriptor: Descriptor, _: int) -> None:
    descriptor.set()


def _eventfd_read(descriptor: Descriptor) -> int:
    descriptor.is_readable = False
    return 1


OS = Facade(
    os,
    eventfd=_eventfd,
    eventfd_write=_eventfd_write,
    eventfd_read=_eventfd_read,
    close=lambda _: None,
)
