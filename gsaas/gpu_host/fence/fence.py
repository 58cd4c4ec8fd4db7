# SPDX-License-Identifier: Apache-2.0
"""Keeps the fence of a GPU host in its desired state.

1. It reads the kernel, compares, and changes what differs: at the start, at every `apply`, and at every `audit`.
2. Until the first `apply`, the admissions of an earlier monitor stay.
3. When an admission is removed, its connections are ended.
4. While it knows daemons by their control groups, a port leads to its own daemon only, whatever listens there.
5. An admission of the host's own address is for its own programs. It is stored as `ruleset.HERE`: their packets use the
   loopback device and may have any address of the host.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace

from gsaas.gpu_host.fence import sockets
from gsaas.gpu_host.fence.layout import ControlGroup, FenceLayout, Listener, Range, merge
from gsaas.gpu_host.fence.ruleset import HERE
from gsaas.gpu_host.fence.table import Elements, FenceTable
from gsaas.objects.daemon import Admission, FenceReport

LOG = logging.getLogger(__name__)


class Fence:
    """The fence of the host that has *address* on the GPU network. Threads may share it.

    *connections* is the upper bound of connections of one address to one port at a time. *monitor* is the control group
    whose programs may connect to every daemon; None: no program of this host may. *netns* names a network namespace,
    for simulated hosts. Every method raises `OSError` if the kernel refuses.
    """

    def __init__(
        self,
        address: str,
        *,
        connections: int = 256,
        monitor: ControlGroup | None = None,
        netns: str | None = None,
    ) -> None:
        self._address = address
        self._layout = FenceLayout((), connections, monitor)
        self._netns = netns
        self._lock = threading.Lock()
        self._table: FenceTable | None = None
        self._desired: frozenset[Admission] | None = None
        self._listeners: frozenset[Listener] = frozenset()

    def start(
        self, ranges: Iterable[Range], listeners: Mapping[int, ControlGroup] | None = None
    ) -> None:
        """Guard these ports from now on, with *listeners* as for `set_listeners`.

        `OSError` if another process owns the table.
        """
        with self._lock:
            self._table = FenceTable(self._netns)
            self._layout = replace(self._layout, ranges=merge(ranges))
            self._know(listeners or {})
            self._reconcile()

    def stop(self) -> None:
        """Stop maintaining the fence; it stays in the kernel, with its admissions."""
        with self._lock:
            if self._table is not None:
                self._table.close()
                self._table = None

    def teardown(self) -> None:
        """Stop, and remove the fence from the kernel, also one that an earlier monitor made."""
        self.stop()
        table = FenceTable(self._netns)
        try:
            table.remove()
        finally:
            table.close()

    def set_ports(self, ranges: Iterable[Range]) -> None:
        """Guard these ports instead; admissions and connections to ports in both stay."""
        with self._lock:
            layout = replace(self._layout, ranges=merge(ranges))
            if layout != self._layout:
                self._layout = layout
                self._reconcile()

    def set_listeners(self, listeners: Mapping[int, ControlGroup]) -> None:
        """Let ports lead to the daemons in these control groups, and to no other program.

        All groups are of one level, the third where systemd runs daemons, and in one of level 1; a program of that one
        and above their level is not seen. If they do not say which that is, ordinary services are not seen either.
        Empty: whatever listens at a port is its daemon.
        """
        with self._lock:
            before = self._layout, self._listeners
            self._know(listeners)
            if before == (self._layout, self._listeners):
                return
            try:
                self._reconcile()
            except OSError:
                self._layout, self._listeners = before  # or the next call would find nothing to do
                raise

    def apply(self, admissions: Iterable[Admission]) -> None:
        """Admit these and no others."""
        with self._lock:
            self._desired = frozenset(self._as_stored(admission) for admission in admissions)
            self._reconcile()

    def audit(self) -> None:
        """Repair what other programs have done to the table."""
        with self._lock:
            self._reconcile()

    def report(self) -> FenceReport:
        """Return the admissions and the count of refusals, as the kernel has them now."""
        with self._lock:
            found = self._started_table().read(self._layout)
            if found is None:
                return FenceReport(frozenset())
            return FenceReport(
                frozenset(self._as_reported(each) for each in found.elements.admitted),
                found.refused,
            )

    def _reconcile(self) -> None:
        table = self._started_table()
        found = table.read(self._layout)
        actual = Elements() if found is None else found.elements
        admitted = actual.admitted if self._desired is None else self._desired
        desired = Elements(admitted, self._listeners)
        if found is None or found.comment != self._layout.comment or not found.intact:
            table.rebuild(self._layout, desired)
        elif desired != actual:
            table.change(add=desired - actual, remove=actual - desired)
        # After the change: a connection that is ended now cannot be opened again.
        if ended := sockets.destroy(self._netns, actual.admitted - admitted, here=HERE):
            LOG.info("%d connections were ended because their admissions were removed", ended)

    def _know(self, listeners: Mapping[int, ControlGroup]) -> None:
        level = max((group.level for group in listeners.values()), default=None)
        tops = {group.top for group in listeners.values()}
        top = tops.pop() if len(tops) == 1 else None
        self._layout = replace(self._layout, daemon_level=level, daemon_top=top)
        self._listeners = frozenset(
            Listener(port, group.number) for port, group in listeners.items()
        )

    def _started_table(self) -> FenceTable:
        if self._table is None:
            raise RuntimeError("the fence is not started")
        return self._table

    def _as_stored(self, admission: Admission) -> Admission:
        own = admission.address == self._address
        return Admission(HERE, admission.port) if own else admission

    def _as_reported(self, admission: Admission) -> Admission:
        own = admission.address == HERE
        return Admission(self._address, admission.port) if own else admission
