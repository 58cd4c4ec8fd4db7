"""Keeps the fence of a GPU host as it is wanted.

1. Read the kernel, compare, change: at start, at every `apply`, and whenever somebody asks for an audit.
2. Until `apply` has said who is admitted, those whom a monitor before us admitted stay admitted.
3. An address that is admitted no more loses its connections in that moment.
4. This host's own address stands for its own programs: their packets never leave it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable
from dataclasses import replace

from gsaas.gpu_host.fence import sockets
from gsaas.gpu_host.fence.layout import Layout, Range, merge
from gsaas.gpu_host.fence.ruleset import HERE
from gsaas.gpu_host.fence.table import Found, Table
from gsaas.objects.daemon import Admission, FenceReport

LOG = logging.getLogger(__name__)


class Fence:
    """Around daemons of the host that has *address* on the GPU network. Safe to share between threads.

    *connections* is how many connections one address may have to one port at a time; *netns* names a network
    namespace, for simulated hosts. Every method raises `OSError` when the kernel would not.
    """

    def __init__(
        self,
        address: str,
        *,
        connections: int = 256,
        netns: str | None = None,
    ) -> None:
        self._address = address
        self._layout = Layout((), connections, os.geteuid())
        self._netns = netns
        self._lock = threading.Lock()
        self._table: Table | None = None
        self._wanted: frozenset[Admission] | None = None

    def start(self, ranges: Iterable[Range]) -> None:
        """Be around these ports from now on."""
        with self._lock:
            self._table = Table(self._netns)
            self._layout = replace(self._layout, ranges=merge(ranges))
            self._settle()

    def stop(self) -> None:
        """Leave the fence as it is: who is admitted stays admitted, and nobody else is."""
        with self._lock:
            if self._table is not None:
                self._table.close()
                self._table = None

    def teardown(self) -> None:
        """Stop, and take the fence away, whoever made it."""
        self.stop()
        table = Table(self._netns)
        try:
            table.remove()
        finally:
            table.close()

    def enclose(self, ranges: Iterable[Range]) -> None:
        """Be around these ports instead."""
        with self._lock:
            layout = replace(self._layout, ranges=merge(ranges))
            if layout != self._layout:
                self._layout = layout
                self._settle()

    def apply(self, admissions: Iterable[Admission]) -> None:
        """Admit these and nobody else."""
        with self._lock:
            self._wanted = frozenset(self._as_stored(admission) for admission in admissions)
            self._settle()

    def audit(self) -> None:
        """Put right what others have done to the table."""
        with self._lock:
            self._settle()

    def report(self) -> FenceReport:
        """Who is admitted, and how often others were refused, as the kernel has it now."""
        with self._lock:
            found = self._read()
            if found is None:
                return FenceReport(frozenset())
            return FenceReport(
                frozenset(self._as_wanted(admission) for admission in found.admitted),
                found.refused,
            )

    def _settle(self) -> None:
        found = self._read()
        admitted = frozenset() if found is None else found.admitted
        wanted = admitted if self._wanted is None else self._wanted
        if found is None or found.comment != self._layout.comment or not found.intact:
            self._table.rebuild(self._layout, wanted)
        elif wanted != admitted:
            self._table.change(add=wanted - admitted, remove=admitted - wanted)
        if ended := sockets.destroy(self._netns, admitted - wanted, here=HERE):
            LOG.info("%d connections ended with their admission", ended)

    def _read(self) -> Found | None:
        if self._table is None:
            raise RuntimeError("the fence is not started")
        return self._table.read(self._layout)

    def _as_stored(self, admission: Admission) -> Admission:
        own = admission.address == self._address
        return Admission(HERE, admission.port) if own else admission

    def _as_wanted(self, admission: Admission) -> Admission:
        own = admission.address == HERE
        return Admission(self._address, admission.port) if own else admission
