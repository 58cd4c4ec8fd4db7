# SPDX-License-Identifier: Apache-2.0
"""Keeps the fence of a GPU host in its desired state.

1. It reads the kernel, compares, and changes what differs: at the start, at every `apply`, and at every `audit`.
2. Until the first `apply`, the admissions of an earlier monitor stay.
3. When an admission is removed, its connections are ended.
4. An admission of the host's own address is for its own programs. It is stored as `ruleset.HERE`: their packets use the
   loopback device and may have any address of the host.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from dataclasses import replace

from gsaas.gpu_host.fence import sockets
from gsaas.gpu_host.fence.layout import ControlGroup, FenceLayout, Range, merge
from gsaas.gpu_host.fence.ruleset import HERE
from gsaas.gpu_host.fence.table import FenceTable
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

    def start(self, ranges: Iterable[Range]) -> None:
        """Guard these ports from now on; `OSError` if another process owns the table."""
        with self._lock:
            self._table = FenceTable(self._netns)
            self._layout = replace(self._layout, ranges=merge(ranges))
            self._reconcile()

    def stop(self) -> None:
        """Stop to maintain the fence; it stays in the kernel, with its admissions."""
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
                frozenset(self._as_reported(admission) for admission in found.admitted),
                found.refused,
            )

    def _reconcile(self) -> None:
        table = self._started_table()
        found = table.read(self._layout)
        admitted = frozenset() if found is None else found.admitted
        desired = admitted if self._desired is None else self._desired
        if found is None or found.comment != self._layout.comment or not found.intact:
            table.rebuild(self._layout, desired)
        elif desired != admitted:
            table.change(add=desired - admitted, remove=admitted - desired)
        # After the change: a connection that is ended now cannot be opened again.
        if ended := sockets.destroy(self._netns, admitted - desired, here=HERE):
            LOG.info("%d connections were ended, as their admissions were removed", ended)

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
