# SPDX-License-Identifier: Apache-2.0
"""Keeps a process on the operating system's threads. To be called before oslo.messaging is imported.

oslo.service depends on eventlet, so eventlet is installed with it, and futurist, oslo.utils and oslo.messaging import
it wherever they find it. None of them has an option against that. Without it a process starts in half the time, and
nothing can replace the locks and sockets of its threads by eventlet's own.

Python documents the means: a name whose entry in `sys.modules` is None cannot be imported
(https://docs.python.org/3/reference/import.html#the-module-cache), which looks to the libraries as if eventlet were not
installed. setup.cfg names the newest releases of oslo.service and oslo.messaging that are known to work so. When
oslo.service no longer depends on eventlet, this module can go; tests/unit/rpc/test_threads.py says when.
"""

from __future__ import annotations

import sys

from oslo_service import backend


def keep_to_threads() -> None:
    """Make eventlet impossible to import, unless it is imported already, and have oslo.service use threads."""
    if "eventlet" not in sys.modules:
        sys.modules["eventlet"] = None  # type: ignore[assignment]  # None is what the documentation says
    backend.init_backend(backend.BackendType.THREADING)
