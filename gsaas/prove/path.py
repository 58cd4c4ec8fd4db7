# SPDX-License-Identifier: Apache-2.0
"""The proof of the whole way: a consumer's host, a lease, the GPU network, a daemon, a GPU; measures.

It takes leases as tenants do, with `gsaas run` on the consumer's host, and runs the CUDA program with them.
"""

from __future__ import annotations

import shlex
import socket
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence

from gsaas.prove import place as places
from gsaas.prove import verdicts
from gsaas.prove.verdicts import LEAST_MTU, Line, Ran

PING_HEADERS = 28
"""Bytes of the headers of IPv4 and ICMP."""
LIMITED = ("timeout", "-k", "5", "100")
"""The words before a command that takes a lease: if ssh is cut, it ends all the same, and gives its lease back."""


def reach(host: str) -> list[str]:
    """Return the words before a command that runs on *host*: none for this host, else ssh."""
    if host in ("localhost", socket.gethostname(), socket.getfqdn()):
        return []
    return ["ssh", "-o", "BatchMode=yes", host]


def lines(
    host: str,
    share_mb: int,
    *,
    gpu_address: str | None = None,
    native: Mapping[str, object] | None = None,
    gsaas: Sequence[str] = ("gsaas",),
) -> Generator[Line, None, None]:
    """Yield a line for each check from *host*, with leases of *share_mb* MiB.

    *gpu_address* is the GPU host's on the GPU network, for the checks of the network below leases. *native* is the
    document of `prove gpu-host` there, to compare with. *gsaas* is the command on the host.
    """
    before = reach(host)
    if gpu_address is not None:
        yield _mtu(_ended([*before, *_ping(gpu_address, LEAST_MTU)]), gpu_address)
    run = [*LIMITED, *gsaas, "run", "-ncgpus=1", f"-poolmem={share_mb}", "-mode=shared", "--"]
    began = time.monotonic()
    done = _ended([*before, *_words(before, [*run, "true"])])
    took = time.monotonic() - began
    if done is None or done.returncode:
        ended = done is not None and done.returncode != places.TIMED_OUT
        said = done.stderr.strip()[-300:] if done is not None and ended else "it does not end"
        mend = f"gsaas check -ncgpus=1 on {host} says more: {said}"
        yield verdicts.fail("lease", "not given", mend)
        return
    yield verdicts.ok("lease", f"given, used and returned in {took * 1e3:.0f} ms", seconds=took)

    def ran(*words: str) -> Ran:
        return places.run(words, {}, [*before, *_words(before, [*run, "python3", "-"])])

    yield from verdicts.computed(f"from {host}", ran("compute"), native_of(native))
    over = ran("exceed", str(share_mb))
    yield verdicts.limited(share_mb, over, Ran({"rounds": 1}), way="of the lease")[0]


def native_of(document: Mapping[str, object] | None) -> Ran | None:
    """Return the native run of a document of `prove gpu-host`; None if it has none."""
    found = document.get("lines") if document is not None else None
    if not isinstance(found, Sequence):
        return None
    values: dict[str, object] = {}
    for line in found:
        if "native: " in line["name"]:
            values |= line["values"]
    return Ran(values) if values else None


def _words(before: Sequence[str], command: list[str]) -> list[str]:
    """Return a command as ssh takes it, which gives it to a shell; unchanged on this host."""
    return [shlex.join(command)] if before else command


def _ping(address: str, mtu: int) -> list[str]:
    return ["ping", "-c", "3", "-M", "do", "-s", str(mtu - PING_HEADERS), "-W", "2", address]


def _ended(command: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
    """Run a command; return it when it has ended, None if it did not or cannot be run."""
    try:
        return places.ended(command)
    except (OSError, subprocess.TimeoutExpired):
        return None


def _mtu(done: subprocess.CompletedProcess[str] | None, address: str) -> Line:
    name = "MTU of the GPU network"
    if done is None:
        return verdicts.skip(name, "ping cannot be run")
    if done.returncode == 0:
        return verdicts.ok(name, f"packets of {LEAST_MTU} bytes reach {address} whole")
    mend = f"set an MTU of {LEAST_MTU} on both hosts and the switches between them, or accept slower copies"
    return verdicts.warn(name, f"packets of {LEAST_MTU} bytes do not reach {address}", mend)
