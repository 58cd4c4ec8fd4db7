# SPDX-License-Identifier: Apache-2.0
"""Which hosts an engine is correcting at this moment, because of what they have reported."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Corrections:
    """At most one correction of each kind for each host at a time, and *most* altogether.

    Safe to share between threads. A host that reports what is to be corrected, and answers slowly when it is, would
    otherwise occupy every thread in which the engine serves messages, with as many reports. So would many such hosts.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._running: set[tuple[str, str]] = set()

    @contextmanager
    def of(self, host: str, kind: str) -> Iterator[bool]:
        """Yield whether this correction may begin: fewer than *most* are running, and none of this *kind* for *host*.

        If not, the next report of the host brings what is left to correct.
        """
        with self._lock:
            may_begin = (host, kind) not in self._running and len(self._running) < self._most
            if may_begin:
                self._running.add((host, kind))
        try:
            yield may_begin
        finally:
            if may_begin:
                with self._lock:
                    self._running.discard((host, kind))
