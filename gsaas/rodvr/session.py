# SPDX-License-Identifier: Apache-2.0
"""The kernel objects that an endpoint has open between its start and its stop."""

from __future__ import annotations

from collections.abc import Callable

from gsaas.rodvr.kernel import Datapath, Watch


class KernelSession:
    """The datapath of one host and the watch for its events, open while the endpoint runs."""

    def __init__(self, host: str, open_datapath: Callable[[], Datapath]) -> None:
        self._host = host
        self._open_datapath = open_datapath
        self._datapath: Datapath | None = None
        self._watch: Watch | None = None

    @property
    def datapath(self) -> Datapath:
        """The open datapath; `RuntimeError` if the endpoint is not running."""
        if self._datapath is None:
            raise RuntimeError(f"the endpoint of {self._host} is not running")
        return self._datapath

    @property
    def watch(self) -> Watch | None:
        """The watch for link and table events; None if the endpoint is not running."""
        return self._watch

    def open(self) -> None:
        """Open datapath and watch; `OSError` if the kernel refuses the sockets."""
        self._datapath = self._open_datapath()
        self._watch = self._datapath.watch()

    def close(self) -> None:
        """Close both. What is in the kernel stays there."""
        if self._watch is not None:
            self._watch.close()
        if self._datapath is not None:
            self._datapath.close()
        self._watch = self._datapath = None

    def wake(self) -> None:
        """End the wait of the thread that waits for events, if there is one."""
        if self._watch is not None:
            self._watch.wake()

    def teardown(self) -> None:
        """Remove everything of RODVR from the kernel, in a datapath of its own; `OSError` if it refuses."""
        datapath = self._open_datapath()
        try:
            datapath.teardown()
        finally:
            datapath.close()
