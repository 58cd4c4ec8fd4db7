# SPDX-License-Identifier: Apache-2.0
"""The programs that gsaas installs: each starts its module, or says which extra is missing.

The distribution installs all of them on every machine, but each extra only the libraries of its own process
(`setup.cfg`). So this module imports nothing that an extra brings.
"""

from __future__ import annotations

import importlib
import sys


def engine() -> int:
    """Start `gsaas-engine`; return its exit status, as all functions here do."""
    return _start("engine")


def manage() -> int:
    """Start `gsaas-manage`, which needs what the engine needs."""
    return _start("manage", extra="engine")


def monitor() -> int:
    """Start `gsaas-monitor`."""
    return _start("monitor")


def rodvr() -> int:
    """Start `gsaas-rodvr`."""
    return _start("rodvr")


def sim() -> int:
    """Start `gsaas-sim`."""
    return _start("sim")


def standalone() -> int:
    """Start `gsaas-standalone`."""
    return _start("standalone")


def status() -> int:
    """Start `gsaas-status`, which needs what the engine needs."""
    return _start("status", extra="engine", failure=255)


def _start(name: str, extra: str = "", failure: int = 1) -> int:
    """Run the program of the module *name*; return its exit status, or *failure* if a library is not installed."""
    try:
        started: int = importlib.import_module(f"gsaas.cli.{name}").main()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "gsaas"):  # a mistake in GSaaS itself
            raise
        print(
            f"gsaas-{name}: the library {missing} is not installed; this program needs "
            f"gsaas[{extra or name}]: install that into {sys.prefix}",
            file=sys.stderr,
        )
        return failure
    return started
