# SPDX-License-Identifier: Apache-2.0
"""XID errors, which NVIDIA's driver reports of GPUs as they happen: a thread waits for NVML's events."""

from __future__ import annotations

import ctypes
import logging
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pynvml
from oslo_utils import timeutils

from gsaas.objects.gpu_report import XidError
from gsaas.objects.printable import one_line
from gsaas.objects.received import MAX_INTEGER

LOG = logging.getLogger(__name__)

MAX_ERRORS = 10
"""Upper bound of the errors that are remembered of one GPU."""
WAIT_MS = 1000
"""Milliseconds of one wait for an event: how soon the thread notices that it has to stop."""
STOP_TIMEOUT = 5.0
"""Seconds that `XidWatch.stop` waits for the thread; a thread that takes longer hangs in the driver."""

MEANINGS = {
    13: "a program's graphics engine exception",
    31: "a program's memory page fault",
    43: "a program was stopped",
    48: "double-bit ECC error",
    63: "memory rows to be remapped, or pages to be retired, at the next reset",
    64: "memory rows could not be remapped, nor pages retired",
    74: "NVLink error",
    79: "it has fallen off the bus",
    92: "many single-bit ECC errors",
    94: "contained ECC error",
    95: "uncontained ECC error",
    119: "its system processor does not answer",
}
"""XID -> a short description; NVIDIA's document "XID Errors" describes all of them."""


@dataclass(frozen=True)
class _XidEvent:
    error: XidError
    instance: int | None
    """The GPU instance that it happened to; None if it concerns the whole GPU."""


class XidWatch:
    """Remembers the last XID errors of each GPU; those whose number is in *fatal* are marked. One thread uses it."""

    def __init__(self, fatal: Collection[int]) -> None:
        self._fatal = frozenset(fatal)
        self._on_change: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._events: dict[str, deque[_XidEvent]] = defaultdict(lambda: deque(maxlen=MAX_ERRORS))
        """By the UUID of the physical GPU."""
        self._watched: dict[int, str] = {}
        """`handle_address` -> UUID."""
        self._event_set: Any = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self.problem: str | None = None
        """Why errors are not noticed now, as a sentence; None if they are."""

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Have *on_change* called after each error, from another thread."""
        self._on_change = on_change

    def errors(self, uuid: str, instance: int | None = None) -> list[XidError]:
        """Return the last errors of a GPU, oldest first; with *instance* those that may concern this MIG instance."""
        with self._lock:
            return [
                event.error
                for event in self._events.get(uuid, ())
                if instance is None or event.instance in (None, instance)
            ]

    def watch(self, handles: Mapping[str, Any]) -> None:
        """Watch these physical GPUs, UUID -> NVML's handle, and no others from now on."""
        watched = {handle_address(handle): uuid for uuid, handle in handles.items()}
        alive = self._thread is not None and self._thread.is_alive()
        if watched == self._watched and (alive or not watched):
            return
        self.stop()
        self._watched = watched
        if watched:
            try:
                self._start_watching(handles)
            except pynvml.NVMLError as error:
                self.problem = f"the driver's errors (XIDs) cannot be watched: {said(error)}"
                self._watched = {}

    def stop(self) -> bool:
        """Stop watching all GPUs; return whether the thread has ended, so that NVML may be shut down."""
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(STOP_TIMEOUT)
            if thread.is_alive():
                LOG.warning("a thread hangs in NVIDIA's driver")
                return False
        if self._event_set is not None:
            events, self._event_set = self._event_set, None
            try:
                pynvml.nvmlEventSetFree(events)
            except pynvml.NVMLError as error:
                LOG.debug("NVML's events could not be freed: %s", error)
        self._watched = {}
        return True

    def _start_watching(self, handles: Mapping[str, Any]) -> None:
        self._event_set = pynvml.nvmlEventSetCreate()
        failures: dict[str, list[str]] = {}
        """What the driver says -> the GPUs of which it says that."""
        for uuid, handle in handles.items():
            try:
                pynvml.nvmlDeviceRegisterEvents(
                    handle, pynvml.nvmlEventTypeXidCriticalError, self._event_set
                )
            except pynvml.NVMLError as error:
                if error.value != pynvml.NVML_ERROR_NOT_SUPPORTED:
                    failures.setdefault(said(error), []).append(uuid)
        reasons = [f"of {_some(uuids)}: {why}" for why, uuids in failures.items()]
        self.problem = (
            f"the driver's errors (XIDs) cannot be watched {'; '.join(reasons)}"
            if reasons
            else None
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._wait, args=(self._event_set, self._stopping), name="xids", daemon=True
        )
        self._thread.start()

    def _wait(self, events: Any, stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                self._record(pynvml.nvmlEventSetWait_v2(events, WAIT_MS))
            except pynvml.NVMLError_Timeout:
                continue
            except pynvml.NVMLError as error:
                # A GPU is lost, or all are: the next snapshot finds out.
                LOG.debug("waiting for NVML's events ended: %s", error)
                self._on_change()
                return

    def _record(self, data: Any) -> None:
        uuid = self._watched.get(handle_address(data.device))
        if uuid is None or data.eventType != pynvml.nvmlEventTypeXidCriticalError:
            return
        number = int(data.eventData)
        if number > MAX_INTEGER:
            LOG.debug("GPU %s: the driver reported an error with the number %d", uuid, number)
            return
        error = XidError(timeutils.utcnow(), number, number in self._fatal)
        whole = data.gpuInstanceId == ctypes.c_uint(-1).value
        with self._lock:
            self._events[uuid].append(_XidEvent(error, None if whole else data.gpuInstanceId))
        LOG.warning("GPU %s: %s", uuid, describe(number))
        self._on_change()


def describe(xid: int) -> str:
    """Return the number of an error with its meaning, if that is known."""
    return f"XID {xid}: {MEANINGS[xid]}" if xid in MEANINGS else f"XID {xid}"


def said(error: pynvml.NVMLError) -> str:
    """Return the text of an error, which is the driver's for those that pynvml does not know."""
    try:
        return one_line(str(error), 200)
    except UnicodeDecodeError:
        return f"NVML's error {error.value}"


def _some(uuids: Sequence[str]) -> str:
    """Return the first of *uuids* and how many more there are."""
    return uuids[0] if len(uuids) == 1 else f"{uuids[0]} and {len(uuids) - 1} more GPUs"


def handle_address(handle: Any) -> int:
    """Return the address behind a handle of NVML, which identifies it: handles cannot be compared."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
