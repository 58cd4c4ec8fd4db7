# SPDX-License-Identifier: Apache-2.0
"""Containers that end with the tests, however these end.

A container is no child of the process that starts it, and outlives it. So a process beside the tests, which waits for
their end, removes all containers that have their label.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

REMOVE = """\
cat
podman ps --all --quiet --filter="label=$1" | xargs --no-run-if-empty podman rm --force --time=0
"""
"""The input ends when the tests do: they alone have the other end of the pipe, and write nothing into it."""


@contextmanager
def ending_with_us() -> Iterator[str]:
    """Yield a label: containers that have it are removed afterwards, and also if this process is killed before."""
    label = f"gsaas-tests={uuid.uuid4().hex}"
    with subprocess.Popen(
        ["sh", "-c", REMOVE, "remove", label],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # what interrupts the tests does not interrupt it
    ):
        yield label


def command(label: str, words: Sequence[str]) -> list[str]:
    """Return the command for podman with these *words*; a container that it runs has the *label*."""
    if words[0] != "run":
        return ["podman", *words]
    # If the tests are killed, it is before it has started a container that nobody would remove.
    alone = ("setpriv", "--pdeathsig=KILL", "--")
    return [*alone, "podman", "run", f"--label={label}", *words[1:]]
