# SPDX-License-Identifier: Apache-2.0
"""Opens sockets and files inside a named network namespace.

Each thread has a network namespace of its own. Only the calling thread enters the other one, and it always
returns, so other threads of the process (endpoints of other simulated hosts) are not affected.
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
    """Run the block in the namespace *name*; with None in the current one, which needs no privilege.

    Raises `FileNotFoundError` if there is no such namespace, and `OSError` without CAP_SYS_ADMIN.
    """
    if name is None:
        yield
        return
    original = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        target = os.open(DIRECTORY / name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            pyroute2_netns.setns(target)
        finally:
            os.close(target)
        try:
            yield
        finally:
            pyroute2_netns.setns(original)
    finally:
        os.close(original)
