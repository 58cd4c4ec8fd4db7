# SPDX-License-Identifier: Apache-2.0
"""What is to be proved, and the jobs of a proof: programs and daemons that are ended however it ends."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gsaas.objects.daemon import Daemon
from gsaas.prove import place as places
from gsaas.prove.facts import Facts
from gsaas.prove.place import Job, Place, Unusable
from gsaas.prove.verdicts import Gpu, Ran
from gsaas.remoting.base import RemotingDriver

NEIGHBOUR_MIB = 64
NEIGHBOUR_SECONDS = 8.0
"""For how long the neighbour of a program that goes over its limit computes."""

AnyJob = TypeVar("AnyJob", bound=Job)


@dataclass(frozen=True)
class Proof:
    """What is to be proved, and how."""

    facts: Facts
    place: Place
    middleware: RemotingDriver
    memory_limit: str
    """`[daemons]memory_limit`."""
    share_mb: int
    """MiB of the cGPU whose limit is tried."""
    start_timeout: float
    """Seconds until a daemon has to answer."""
    native: Mapping[str, str]
    """The environment in which this host's own CUDA library is found."""
    libraries: Path | None
    """The folder of the middleware's client library on this host; None: it has none."""


def run(place: Place, daemon: Daemon, *words: str) -> Ran:
    try:
        job = place.start(daemon, words)
    except Unusable as error:
        return Ran(None, str(error))
    try:
        return job.result()
    finally:
        job.kill()


@contextmanager
def computing(place: Place, daemon: Daemon, seconds: float) -> Iterator[Job]:
    """Have a program compute for *seconds* or until the end of the block, which begins when it does.

    Raises `Unusable`.
    """
    with once_computing(place.start(daemon, ["occupy", str(NEIGHBOUR_MIB), str(seconds)])) as job:
        yield job


@contextmanager
def once_computing(job: AnyJob) -> Iterator[AnyJob]:
    """Wait until a job computes, and end it after the block; raises `Unusable`."""
    try:
        if not job.await_output("computing"):
            raise Unusable(f"a program does not compute: {job.output()[-300:].strip()}")
        yield job
    finally:
        job.kill()


def memory_mb(proof: Proof, gpu: Gpu, which: str = "used_mb") -> int | None:
    """Return the MiB of a GPU that are in use, or "free_mb" those that are free; None if that is not known."""
    environment = {**proof.native, "CUDA_VISIBLE_DEVICES": gpu.uuid}
    found = (places.run(["used"], environment).result or {}).get(which)
    return found if isinstance(found, int) else None


def free_port() -> int:
    """Return a port outside of those of daemons: the fence of a running monitor guards these."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port
