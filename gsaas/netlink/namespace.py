"""Opening sockets and files inside a named network namespace, without staying there.

A namespace belongs to a thread. Only the calling thread moves, and it always comes back, so other
threads of the process (endpoints of other simulated hosts) never notice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyroute2 import netns as pyroute2_netns

DIRECTORY = Path("/run/netns")


@contextmanager
def entered(name: str | None) -> Iterator[None]:
    """Run the block in the namespace *name* (None: stay here, which needs no privilege)."""
    if name is None:
        yield
        return
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        away = os.open(DIRECTORY / name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            pyroute2_netns.setns(away)
        finally:
            os.close(away)
        try:
            yield
        finally:
            pyroute2_netns.setns(home)
    finally:
        os.close(home)
