# SPDX-License-Identifier: Apache-2.0
"""The network namespaces that gsaas-standalone makes; it finds them again after a crash and never touches others.

For each namespace there is a marker file in the state directory, written before the namespace is made and removed after
it is gone. A namespace without a marker belongs to another program and is left alone.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

DIRECTORY = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
_MNT_DETACH = 2


class ForeignNamespace(Exception):
    """Another program made a namespace of the required name."""


class Namespaces:
    """The namespaces that the markers in *state_dir* name."""

    def __init__(self, state_dir: Path) -> None:
        self._markers = state_dir / "namespaces"

    def make(self, name: str) -> None:
        """Make the namespace *name* unless it exists; raise `ForeignNamespace` if another program made it."""
        marker = self._markers / name
        if not marker.exists():
            if (DIRECTORY / name).exists():
                raise ForeignNamespace(
                    f"another program made the network namespace {name}; choose another --prefix"
                )
            self._markers.mkdir(parents=True, exist_ok=True)
            marker.touch()
        # From here on the name is this program's, marked by this call or by one that a crash interrupted.
        if not namespace_exists(name):
            with suppress(FileNotFoundError):
                (DIRECTORY / name).unlink()  # the mount point that a crash while making it has left
            _run_in_thread(_make, name)

    def remove(self, name: str) -> None:
        """Remove the namespace *name* if it has a marker; do nothing otherwise."""
        marker = self._markers / name
        if not marker.exists():
            return
        if namespace_exists(name):
            _call("umount2", os.fsencode(DIRECTORY / name), _MNT_DETACH)
        with suppress(FileNotFoundError):
            (DIRECTORY / name).unlink()
        marker.unlink()

    def names(self) -> list[str]:
        """Return the names of all namespaces with a marker, sorted."""
        return (
            sorted(path.name for path in self._markers.iterdir()) if self._markers.is_dir() else []
        )


def namespace_exists(name: str) -> bool:
    """Return whether there is a namespace of that name, not only its file: a mount has a device of its own."""
    try:
        return os.stat(DIRECTORY / name).st_dev != os.stat(DIRECTORY).st_dev  # noqa: PTH116
    except FileNotFoundError:
        return False


def _make(name: str) -> None:
    """Move this thread into a new namespace, and name that. The thread must end afterwards."""
    # Imported here, because it takes longer than everything that `--clean` does, which needs none of it.
    from pyroute2 import netns

    _call("unshare", _CLONE_NEWNET)
    netns.attach(name, "thread-self")


def _call(function: str, *arguments: object) -> None:
    """Call a function of the C library; raise `OSError` if it fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments):
        code = ctypes.get_errno()
        raise OSError(code, f"{function}: {os.strerror(code)}")


def _run_in_thread(function: Callable[..., None], *arguments: str) -> None:
    """Run *function* in a thread of its own; raise here what it raises."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            function(*arguments)
        except BaseException as error:  # noqa: BLE001  (raised again in the calling thread)
            raised.append(error)

    thread = threading.Thread(target=run, name=f"make-{arguments[0]}")
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
