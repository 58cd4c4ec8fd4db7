# SPDX-License-Identifier: Apache-2.0
"""Tasks of which exactly one runs at a time, and simulated time: who goes on is drawn from a `random.Random`.

1. A task is a greenlet: a stack of its own, as a thread has one, without the kernel's scheduler, which would take a
   thousand times as long on a busy machine. It runs until it comes to a point where others may go on: it calls
   `point`, or waits.
2. A task that waits for another, or for a moment, cannot be drawn. If all tasks wait, time jumps to the next moment.
3. A process is killed at a point: each of its tasks gets `Killed` where it is, and again at each further point, so that
   whatever it would do on its way out has no effect.

Nothing here knows what the tasks do.
"""

from __future__ import annotations

import heapq
import itertools
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from greenlet import getcurrent, greenlet

TICK = 1e-4
"""Seconds of simulated time that pass from one point to the next."""


class Killed(BaseException):
    """The process of this task was killed."""


class Stuck(Exception):
    """Nobody can go on, or tasks go on without an end."""


@dataclass(eq=False)
class Process:
    """What is killed together. The tasks of a process that stands still are not drawn."""

    name: str
    stands_still_until: float = 0.0
    skew: float = 0.0
    """Seconds by which its clock is wrong."""
    fuse: int | None = None
    """The points that it still passes before it is killed; None: any number."""
    dies_after: str | None = None
    """The kind of effect after which it is killed: see `Scheduler.effect`."""
    survives: int = 0
    """How many of these effects it still survives."""
    life: int = 1
    """How often it was started, this time included."""
    is_alive: bool = True


@dataclass(eq=False)
class Task:
    """What a thread is elsewhere."""

    name: str
    process: Process
    stack: greenlet
    is_ready: bool = True
    until: float | None = None
    """When it is ready again, if nobody wakes it before."""
    was_woken: bool = False
    ended: bool = False
    joining: list[Task] = field(default_factory=list)
    handle: object = None
    """What `threading.current_thread` returns in it."""


class Scheduler:
    """Draws from *chance* which task goes on. *eagerness*, 0 to 1, is how often one is drawn at a point."""

    def __init__(
        self, chance: random.Random, eagerness: float = 1.0, most_points: int = 1_000_000
    ) -> None:
        self.chance = chance
        self.now = 0.0
        """Seconds since the world began."""
        self.points = 0
        self.switches = 0
        self.on_killed: Callable[[Process], None] = lambda _: None
        self.on_ended: Callable[[Process], None] = lambda _: None
        """Called when the last task of a process that was killed has ended."""
        self.on_crash: Callable[[Task, BaseException], None] = lambda *_: None
        self.on_effect: Callable[[str], None] = lambda _: None
        """Called after each effect, before anything else happens."""
        self._eagerness = eagerness
        self._most_points = most_points
        self._dying: list[Task] = []
        self.driver = Task("driver", Process("world"), getcurrent())
        """The task of whoever made this."""
        self.tasks = [self.driver]
        self.current = self.driver
        self._ready = [self.driver]
        """Those that wait for nothing, the one that runs among them."""
        self._timers: list[tuple[float, int, Task]] = []
        """A heap of the moments for which tasks wait; one that does not wait for it any more is passed over."""
        self._serials = itertools.count()

    # -- for tasks ----------------------------------------------------------------------------------

    def spawn(self, name: str, call: Callable[[], object], process: Process | None = None) -> Task:
        """Begin a task of *process*, by default that of the caller."""
        stack = greenlet(lambda *_: self._run(task, call), self.driver.stack)
        task = Task(name, process or self.current.process, stack)
        self.tasks.append(task)
        self._ready.append(task)
        if not task.process.is_alive:
            self._dying.append(task)
        return task

    def point(self) -> None:
        """Let another task go on here, or end if this process was killed."""
        task = self.current
        if not task.process.is_alive:
            raise Killed
        self.points += 1
        self.now += TICK
        if task.process.fuse is not None:
            task.process.fuse -= 1
            if task.process.fuse < 0:
                self.kill(task.process)
                raise Killed
        if self.chance.random() < self._eagerness:
            self._hand_over(self._draw())

    def effect(self, kind: str) -> None:
        """Pass a point at which something outside this process, of this *kind*, has just changed.

        A process that may be killed at any point is rarely killed at the few that matter.
        """
        process = self.current.process
        if process.is_alive:
            self.on_effect(kind)
        if process.is_alive and process.dies_after == kind:
            process.survives -= 1
            if process.survives < 0:
                process.dies_after = None
                self.kill(process)
        self.point()

    def wait(self, waiting: list[Task] | None = None, until: float | None = None) -> bool:
        """Wait in *waiting* until another task wakes this one, or until that moment; return whether one did."""
        task = self.current
        if not task.process.is_alive:
            raise Killed
        if waiting is not None:
            waiting.append(task)
        task.is_ready, task.until, task.was_woken = False, until, False
        self._ready.remove(task)
        if until is not None:
            heapq.heappush(self._timers, (until, next(self._serials), task))
        try:
            self.points += 1
            self._hand_over(self._draw())
        finally:
            if waiting is not None and task in waiting:
                waiting.remove(task)
        return task.was_woken

    def sleep(self, seconds: float) -> None:
        """Wait for so many seconds."""
        self.wait(until=self.now + max(0.0, seconds))

    def wake(self, waiting: list[Task], number: int | None = None) -> None:
        """Wake the first *number* tasks of *waiting*; None: all of them."""
        chosen = waiting[:number]
        del waiting[: len(chosen)]
        for task in chosen:
            task.was_woken = True
            self._make_ready(task)

    def join(self, task: Task, timeout: float | None = None) -> None:
        """Wait until *task* has ended."""
        until = None if timeout is None else self.now + max(0.0, timeout)
        while not task.ended and self.wait(task.joining, until):
            pass

    def kill(self, process: Process) -> None:
        """Kill *process* as `kill -9` would. A task of its own must raise `Killed` after this."""
        if not process.is_alive:
            return
        process.is_alive, process.fuse = False, None
        self._dying += [task for task in self.tasks if task.process is process]
        self.on_killed(process)

    def reap(self) -> None:
        """Let all tasks end whose processes were killed."""
        while any(not task.ended for task in self._dying):
            self._hand_over(self._draw())

    # -- who goes on --------------------------------------------------------------------------------

    def _draw(self) -> Task:
        while self._dying:
            if not self._dying[0].ended:
                return self._dying[0]
            del self._dying[0]
        if self.points > self._most_points:
            return self._give_up(f"{self._most_points} points were passed")
        while True:
            now = self.now
            while self._timers and (
                (moment := self._timers[0][0]) <= now or self._timers[0][2].until != moment
            ):
                task = heapq.heappop(self._timers)[2]
                if task.until == moment:
                    self._make_ready(task)
            ready = [task for task in self._ready if task.process.stands_still_until <= now]
            if ready:
                if len(ready) == 1:
                    return ready[0]
                return ready[int(self.chance.random() * len(ready))]
            moments = [task.process.stands_still_until for task in self._ready]
            if self._timers:
                moments.append(self._timers[0][0])
            if not moments:
                return self._give_up("every task waits for another one")
            self.now = min(moments)

    def _make_ready(self, task: Task) -> None:
        task.until = None
        if not task.is_ready:
            task.is_ready = True
            self._ready.append(task)

    def _give_up(self, why: str) -> Task:
        self._most_points = sys.maxsize
        self.driver.handle = Stuck(why)
        self._make_ready(self.driver)
        return self.driver

    def _hand_over(self, task: Task) -> None:
        me = self.current
        if task is not me:
            self.switches += 1
            self.current = task
            task.stack.switch()
        self._make_ready(me)
        if not me.process.is_alive:
            raise Killed
        if me is self.driver and isinstance(me.handle, Stuck):
            stuck, me.handle = me.handle, None
            raise stuck

    def _run(self, task: Task, call: Callable[[], object]) -> None:
        try:
            if task.process.is_alive:
                call()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - the world judges it
            self.on_crash(task, error)
        task.ended = True
        task.until = None
        self.tasks.remove(task)
        if task in self._ready:
            self._ready.remove(task)
        self.wake(task.joining)
        process = task.process
        if not process.is_alive and all(each.process is not process for each in self.tasks):
            self.on_ended(process)
        self.current = following = self._draw()
        task.stack.parent = following.stack  # which goes on when this returns


scheduler: Scheduler | None = None
"""That of the world that runs in this process; None between worlds."""


def here() -> Scheduler:
    """Return the scheduler of the world that runs."""
    if scheduler is None:
        raise RuntimeError("no world runs")
    return scheduler
