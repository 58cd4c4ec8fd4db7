# SPDX-License-Identifier: Apache-2.0
"""The daemons in the network namespaces of one gsaas-standalone, found and ended without a supervisor.

It loads little, because every `gsaas-standalone --clean` looks for such daemons.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from gsaas.gpu_host.daemons import unit
from gsaas.gpu_host.daemons.systemd import Systemd
from gsaas.gpu_host.daemons.unit import UnitState

_POLL_INTERVAL = 0.1
"""Seconds between two looks at units that end."""


def of(namespaces: Collection[str], units: Iterable[UnitState]) -> list[UnitState]:
    """Return those *units* whose daemons run in one of *namespaces*, and in no other whose name begins alike."""
    beginnings = tuple(unit.prefix(name) for name in namespaces)
    return [state for state in units if state.name.startswith(beginnings)]


def find(systemd: Systemd, namespaces: Collection[str]) -> list[UnitState]:
    """Return the units of all daemons in *namespaces*; raises `SystemdUnavailable`."""
    return of(namespaces, systemd.units(f"{unit.OF_A_NAMESPACE}*"))


def end_all(systemd: Systemd, namespaces: Collection[str], timeout: float) -> bool:
    """End every daemon in *namespaces*; return whether none is left after *timeout* seconds.

    Raises `gsaas.gpu_host.daemons.systemd.SystemdUnavailable` and `SystemdRefused`.
    """
    deadline = time.monotonic() + timeout
    while found := find(systemd, namespaces):
        for state in found:
            (systemd.forget if state.ended else systemd.stop)(state.name)
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_INTERVAL)
    return True
