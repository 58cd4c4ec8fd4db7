# SPDX-License-Identifier: Apache-2.0
"""Whether what limits the memory of a daemon on a GPU is there: HAMi-core's library, or an MPS control daemon.

CUDA says nothing if the control daemon of its MPS folder has ended: it computes without MPS, and without a limit. That
daemon may leave its socket behind. Nor does CUDA ask who made the folder: whoever may write there can have a server of
his own answer, which limits nothing and sees all that is computed.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path

from gsaas.remoting.daemon import DaemonCommand


def missing(command: DaemonCommand) -> str | None:
    """Return what a daemon's limit needs and does not find, as a sentence; None: it will have an effect."""
    for file in command.required_files:
        if not Path(file).exists():
            return f"there is no {file}"
    folder = command.mps_pipe_directory
    if folder is None:
        return None
    if not listens(Path(folder, "control")):
        return f"nothing listens at {folder}/control any more"
    return distrust(Path(folder))


def listens(path: Path) -> bool:
    """Return whether a process has the unix socket *path*, without a word to it.

    The kernel compares the kinds of both sockets before it connects them, and after it has looked for the process
    (unix(7)): MPS listens for connections, so it never sees a datagram's.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(str(path))
        except OSError as error:
            return error.errno == errno.EPROTOTYPE
    return True


def distrust(folder: Path) -> str | None:
    """Return why others than root, and the user of this process, may replace what is in *folder*; None: none may.

    They may if they have *folder*, or one that contains it, or may write there. In a folder such as /tmp, where all may
    write, nobody may replace what another has.
    """
    for path in dict.fromkeys((*_with_parents(folder), *_with_parents(folder.resolve()))):
        try:
            found = path.lstat()
        except OSError as error:
            return f"{path} cannot be looked at: {error.strerror}"
        if found.st_uid not in (0, os.geteuid()):
            return f"{path} belongs to user {found.st_uid}, who may replace MPS there: {_MEND}"
        is_shared = path != folder and found.st_mode & stat.S_ISVTX
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not (
            is_shared or stat.S_ISLNK(found.st_mode)
        ):
            mode = stat.filemode(found.st_mode)
            return f"{path} has the mode {mode}, so that others may replace MPS there: {_MEND}"
    return None


_MEND = (
    "start the MPS control daemon with a folder below /run that root has and only root may write to, and name it in "
    "[daemons]mps_pipe_directory"
)


def _with_parents(path: Path) -> tuple[Path, ...]:
    return (path, *path.parents)
