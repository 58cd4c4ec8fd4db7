"""The errors that NVIDIA's driver reports of GPUs, as they happen: a thread that waits for NVML's events."""

from __future__ import annotations

import ctypes
import logging
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pynvml
from oslo_utils import timeutils

from gsaas.objects.gpu_report import XidError

LOG = logging.getLogger(__name__)

KEPT = 10
"""Errors that are remembered of one GPU."""
WAIT_MS = 1000
"""How long NVML waits for an event before it asks whether to go on."""
STOP_PATIENCE = 5.0
"""Seconds; whoever waits longer hangs in the driver."""

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
"""In a few words; the driver's documentation has all of them."""


@dataclass(frozen=True)
class _Event:
    error: XidError
    instance: int | None
    """The GPU instance that it happened to, if the driver says so."""


class XidWatch:
    """Remembers the last errors of each GPU, of which those in *fatal* are marked so. Used by one thread."""

    def __init__(self, fatal: Collection[int]) -> None:
        self._fatal = frozenset(fatal)
        self._news: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._events: dict[str, deque[_Event]] = defaultdict(lambda: deque(maxlen=KEPT))
        """By the UUID of the physical GPU."""
        self._watched: dict[int, str] = {}
        """Address of NVML's handle -> UUID."""
        self._set: Any = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self.problem: str | None = None
        """Why errors are not seen now, in words."""

    def notify(self, news: Callable[[], None]) -> None:
        """Have *news* called at each error, from another thread."""
        self._news = news

    def errors(self, uuid: str, instance: int | None = None) -> list[XidError]:
        """Return the last errors of a GPU, oldest first; of a MIG *instance* of it, those that may concern it."""
        with self._lock:
            return [
                event.error
                for event in self._events.get(uuid, ())
                if instance is None or event.instance in (None, instance)
            ]

    def watch(self, handles: Mapping[str, Any]) -> None:
        """Wait for errors of these physical GPUs, NVML's handles by UUID, from now on."""
        wanted = {address(handle): uuid for uuid, handle in handles.items()}
        alive = self._thread is not None and self._thread.is_alive()
        if wanted == self._watched and (alive or not wanted):
            return
        self.stop()
        self._watched = wanted
        if wanted:
            try:
                self._begin(handles)
            except pynvml.NVMLError as error:
                self.problem = f"the driver's errors (XIDs) cannot be watched: {error}"
                self._watched = {}

    def stop(self) -> bool:
        """Wait for no more errors; return whether nobody uses NVML any more."""
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(STOP_PATIENCE)
            if thread.is_alive():
                LOG.warning("a thread hangs in NVIDIA's driver")
                return False
        if self._set is not None:
            events, self._set = self._set, None
            try:
                pynvml.nvmlEventSetFree(events)
            except pynvml.NVMLError as error:
                LOG.debug("NVML's events could not be freed: %s", error)
        self._watched = {}
        return True

    def _begin(self, handles: Mapping[str, Any]) -> None:
        self._set = pynvml.nvmlEventSetCreate()
        deaf = []
        for uuid, handle in handles.items():
            try:
                pynvml.nvmlDeviceRegisterEvents(
                    handle, pynvml.nvmlEventTypeXidCriticalError, self._set
                )
            except pynvml.NVMLError as error:
                if error.value != pynvml.NVML_ERROR_NOT_SUPPORTED:
                    deaf.append(f"of {uuid}: {error}")
        self.problem = (
            f"the driver's errors (XIDs) cannot be watched {'; '.join(deaf)}" if deaf else None
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._wait, args=(self._set, self._stopping), name="xids", daemon=True
        )
        self._thread.start()

    def _wait(self, events: Any, stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                self._note(pynvml.nvmlEventSetWait_v2(events, WAIT_MS))
            except pynvml.NVMLError_Timeout:
                continue
            except pynvml.NVMLError as error:  # a GPU is lost, or all are: whoever looks will see
                LOG.debug("waiting for NVML's events ended: %s", error)
                self._news()
                return

    def _note(self, data: Any) -> None:
        uuid = self._watched.get(address(data.device))
        if uuid is None or data.eventType != pynvml.nvmlEventTypeXidCriticalError:
            return
        number = int(data.eventData)
        error = XidError(timeutils.utcnow(), number, number in self._fatal)
        whole = data.gpuInstanceId == ctypes.c_uint(-1).value
        with self._lock:
            self._events[uuid].append(_Event(error, None if whole else data.gpuInstanceId))
        LOG.warning("GPU %s: %s", uuid, described(number))
        self._news()


def described(xid: int) -> str:
    """What a number means, for people."""
    return f"XID {xid}: {MEANINGS[xid]}" if xid in MEANINGS else f"XID {xid}"


def address(handle: Any) -> int:
    """What tells two of NVML's handles apart."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
