"""Network namespaces that are ours: made, found again after a crash, and removed, never touching anyone else's.

A marker file in the state directory, written before a namespace is made and removed after it is gone, says
that the namespace of that name is ours. One that exists without a marker is left alone.
"""

from __future__ import annotations

import ctypes
import os
import threading
from contextlib import suppress
from pathlib import Path

DIRECTORY = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
_MNT_DETACH = 2


class NotOurs(Exception):
    """A namespace of that name exists, and somebody else made it."""


class Namespaces:
    """The namespaces of one state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._markers = state_dir / "namespaces"

    def make(self, name: str) -> None:
        """Make the namespace *name* unless it is there already; raises `NotOurs`."""
        marker = self._markers / name
        if not marker.exists():
            if (DIRECTORY / name).exists():
                raise NotOurs(
                    f"a network namespace {name} exists that is not ours; choose another --prefix"
                )
            self._markers.mkdir(parents=True, exist_ok=True)
            marker.touch()
        if not exists(name):
            with suppress(FileNotFoundError):
                (DIRECTORY / name).unlink()  # the mount point of a namespace that was half made
            _in_thread(_make, name)

    def remove(self, name: str) -> None:
        """Remove the namespace *name* if it is ours and there."""
        marker = self._markers / name
        if not marker.exists():
            return
        if exists(name):
            _call("umount2", os.fsencode(DIRECTORY / name), _MNT_DETACH)
        with suppress(FileNotFoundError):
            (DIRECTORY / name).unlink()
        marker.unlink()

    def names(self) -> list[str]:
        """All that were ever made and not removed."""
        return (
            sorted(path.name for path in self._markers.iterdir()) if self._markers.is_dir() else []
        )


def exists(name: str) -> bool:
    """Is there a namespace, not only a file, of that name?"""
    try:
        return os.stat(DIRECTORY / name).st_dev != os.stat(DIRECTORY).st_dev  # noqa: PTH116
    except FileNotFoundError:
        return False


def _make(name: str) -> None:
    """Leave this thread's namespace for a new one and give that a name: the thread is of no use afterwards."""
    from pyroute2 import (
        netns,
    )  # only here: it takes longer to import than `--clean` needs for everything

    _call("unshare", _CLONE_NEWNET)
    netns.attach(name, "thread-self")


def _call(function: str, *arguments: object) -> None:
    """Call the C library; raises `OSError`."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments):
        code = ctypes.get_errno()
        raise OSError(code, f"{function}: {os.strerror(code)}")


def _in_thread(function, *arguments: str) -> None:
    """Run *function* in a thread of its own, and raise here what it raises."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            function(*arguments)
        except BaseException as error:  # noqa: BLE001  (raised again, by the caller's thread)
            raised.append(error)

    thread = threading.Thread(target=run, name=f"make-{arguments[0]}")
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
