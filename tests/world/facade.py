# SPDX-License-Identifier: Apache-2.0
"""Gives the modules of GSaaS threads, clocks and random numbers of the world that runs; once, for this process.

Modules import `threading`, `time` and others, as they should. What they imported is replaced by objects with the same
functions, also where a function has one of these as a default. While no world runs, time and random numbers are real.
"""

from __future__ import annotations

import concurrent.futures
import datetime
import functools
import os
import queue
import random
import secrets
import select
import socket
import sys
import threading
import time
import types
import uuid
from typing import Any

import oslo_db.api
from oslo_utils import timeutils

from tests.world import baton, threads

BEGAN = datetime.datetime(2027, 1, 4, 8, 0, 0)
_BEGAN = (BEGAN - datetime.datetime(1970, 1, 1)).total_seconds()
_ASKED_ONLY_HERE = {"gsaas.gpu_host.daemons.supervisor": {"os": threads.OS}}
"""Modules of which more is replaced."""


def _monotonic() -> float:
    return time.monotonic() if baton.scheduler is None else 1000.0 + baton.scheduler.now


def true_time() -> datetime.datetime:
    """Return the time by a clock that is right."""
    return BEGAN + datetime.timedelta(seconds=baton.here().now)


def now() -> float:
    """Return the seconds since 1970 by the clock of the process that asks."""
    scheduler = baton.scheduler
    if scheduler is None:
        return time.time()
    return _BEGAN + scheduler.now + scheduler.current.process.skew


class _Now:
    """What `timeutils.utcnow` takes the time from: it calls `pop` as if this were a list of moments."""

    def pop(self, _: int) -> datetime.datetime:
        scheduler = baton.scheduler
        if scheduler is None:
            return datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
        return BEGAN + datetime.timedelta(seconds=scheduler.now + scheduler.current.process.skew)


def _sleep(seconds: float) -> None:
    if baton.scheduler is None:
        time.sleep(seconds)
    else:
        baton.scheduler.sleep(seconds)


def _bytes(number: int | None = None) -> bytes:
    if baton.scheduler is None:
        return os.urandom(number or 32)
    return baton.scheduler.chance.randbytes(number or 32)


def _uuid4() -> uuid.UUID:
    return uuid.UUID(bytes=_bytes(16), version=4)


def _hostname() -> str:
    return socket.gethostname() if baton.scheduler is None else baton.here().current.process.name


class _Random:
    """The functions of `random` with the numbers of the world."""

    def SystemRandom(self) -> Any:  # noqa: N802
        return self

    def __getattr__(self, name: str) -> Any:
        if baton.scheduler is None or name == "Random":
            return getattr(random, name)
        return getattr(baton.scheduler.chance, name)


_RANDOM = _Random()


def _drawn(name: str, *arguments: Any) -> Any:
    return getattr(_RANDOM, name)(*arguments)


TIME = threads.Facade(
    time,
    monotonic=_monotonic,
    perf_counter=_monotonic,
    time=now,
    sleep=_sleep,
    monotonic_ns=lambda: int(_monotonic() * 1e9),
    time_ns=lambda: int(now() * 1e9),
)
_FUNCTIONS: dict[Any, Any] = {
    time.monotonic: _monotonic,
    time.perf_counter: _monotonic,
    time.time: now,
    time.sleep: _sleep,
    threading.Event: threads.Event,
    threading.Lock: threads.Lock,
    concurrent.futures.ThreadPoolExecutor: threads.ThreadPoolExecutor,
    queue.SimpleQueue: threads.SimpleQueue,
}
_MODULES: dict[Any, Any] = {
    threading: threads.THREADING,
    queue: threads.QUEUE,
    select: threads.SELECT,
    time: TIME,
    random: _RANDOM,
    secrets: threads.Facade(
        secrets,
        token_bytes=_bytes,
        token_hex=lambda number=None: _bytes(number).hex(),
        token_urlsafe=lambda number=None: _bytes(number).hex(),
    ),
    socket: threads.Facade(socket, gethostname=_hostname),
}
_done: set[str] = set()


def install() -> None:
    """Replace what the modules of GSaaS that are loaded by now have imported."""
    # The function itself stays: columns have it as their default.
    timeutils._override_time = _Now()
    timeutils.now = _monotonic
    uuid.uuid4 = _uuid4
    oslo_db.api.time = TIME
    for name, module in sorted(sys.modules.items()):
        if name.startswith("gsaas.") and name not in _done:
            _done.add(name)
            _replace(module)


def _other(value: Any) -> Any:
    """Return what stands for *value*; itself, if that is left as it is."""
    if isinstance(value, random.SystemRandom):
        return _RANDOM
    if isinstance(value, types.MethodType) and isinstance(value.__self__, random.SystemRandom):
        return functools.partial(_drawn, value.__name__)
    try:
        return _MODULES.get(value, _FUNCTIONS.get(value, value))
    except TypeError:  # it has no hash
        return value


def _replace(module: types.ModuleType) -> None:
    for name, value in list(vars(module).items()):
        if isinstance(value, types.FunctionType) and value.__module__ == module.__name__:
            _replace_defaults(value)
        elif isinstance(value, type) and value.__module__ == module.__name__:
            bases = tuple(map(_other, value.__bases__))
            if bases != value.__bases__:
                value.__bases__ = bases
            for each in vars(value).values():
                function = getattr(each, "__func__", each)
                if isinstance(function, types.FunctionType):
                    _replace_defaults(function)
        if _other(value) is not value:
            setattr(module, name, _other(value))
    for name, value in _ASKED_ONLY_HERE.get(module.__name__, {}).items():
        setattr(module, name, value)


def _replace_defaults(function: types.FunctionType) -> None:
    if function.__defaults__:
        function.__defaults__ = tuple(map(_other, function.__defaults__))
    if function.__kwdefaults__:
        function.__kwdefaults__ = {k: _other(v) for k, v in function.__kwdefaults__.items()}
    for cell in function.__closure__ or ():
        # Of what `dataclass` makes: the factories of fields.
        content: object = cell.cell_contents if _is_filled(cell) else None
        if content is not None and _other(content) is not content:
            cell.cell_contents = _other(content)


def _is_filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True
