# SPDX-License-Identifier: Apache-2.0
"""The proof of limits: how far a program gets beyond its share of a device while its neighbour on that computes.

1. On a GPU, both programs are CUDA's, in the place of daemons.
2. On a CPU device, both compute through daemons of the middleware, as tenants do: what the program sees of its end is
   the middleware's affair. Then code in the place of its daemon takes memory as several processes together would.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager

from gsaas.objects.address import Address
from gsaas.objects.daemon import Daemon
from gsaas.objects.device_kinds import CPU, kind_of
from gsaas.prove import jobs, verdicts
from gsaas.prove import place as places
from gsaas.prove.jobs import Proof
from gsaas.prove.place import Process, Unusable
from gsaas.prove.verdicts import Gpu, Line, Ran
from gsaas.remoting.base import ClientDevice

CLIENTS = ("ggml", "tvm")
"""The middlewares with a program in `gsaas.prove.clients`."""


def lines(proof: Proof) -> Generator[Line, None, None]:
    """Yield a line for each limit of each device, and for the neighbour, as soon as it is known."""
    for number, gpu in enumerate(proof.facts.gpus):
        found = on_a_cpu_device(proof, gpu) if kind_of(gpu.uuid) == CPU else on_a_gpu(proof, gpu)
        for line in found:
            yield verdicts.numbered(line, number) if len(proof.facts.gpus) > 1 else line


def on_a_gpu(proof: Proof, gpu: Gpu) -> Iterator[Line]:
    """Yield the lines about a program that goes over its memory limit, and about its neighbour."""
    if gpu.mig:
        yield verdicts.skip("memory limit", "MIG is on: instances are not proved")
        return
    place, share = proof.place, proof.share_mb
    limited = place.daemon(gpu.uuid, jobs.free_port(), share)
    # The neighbour is a tenant of the same GPU, with a share of the same size.
    beside = place.daemon(gpu.uuid, jobs.free_port(), share)
    free: int | None = None
    try:
        with jobs.computing(place, beside, jobs.NEIGHBOUR_SECONDS) as neighbour:
            free = jobs.memory_mb(proof, gpu, "free_mb")
            over = jobs.run(place, limited, "exceed", str(share))
            result = neighbour.result(jobs.NEIGHBOUR_SECONDS + places.TIMEOUT)
    except Unusable as error:
        over = result = Ran(None, str(error))
    yield from verdicts.limited(share, over, result, way=proof.memory_limit, free_mb=free)


def on_a_cpu_device(proof: Proof, device: Gpu) -> Iterator[Line]:
    """Yield the lines about a program that goes over its share, and about its neighbour on the same device."""
    place, share = proof.place, proof.share_mb
    if proof.middleware.name not in CLIENTS:
        why = f"there is no program for {proof.middleware.name}, only for {' and '.join(CLIENTS)}"
        yield verdicts.skip("memory limit", why)
        return
    mine, beside = (place.daemon(device.uuid, jobs.free_port(), share) for _ in range(2))
    allowed = place.settings.command(mine, places.HOST, place.address).host_memory_mb or share
    try:
        with ExitStack() as stack:
            stack.enter_context(_daemon(proof, mine))
            stack.enter_context(_daemon(proof, beside))
            neighbour = stack.enter_context(jobs.once_computing(_client(proof, beside, "compute")))
            over = _result(_client(proof, mine, "exceed", str(share)))
            yield verdicts.limited_by_process(place.cpu_limit, share, allowed, over)
            yield _together(proof, device, allowed)
            neighbour.ask_to_end()
            yield verdicts.undisturbed("neighbour under pressure", neighbour.result())
    except Unusable as error:
        yield verdicts.fail("memory limit", "not tried", str(error))


def _together(proof: Proof, device: Gpu, allowed_mb: int) -> Line:
    """Return the line about all processes of a daemon together, of which a tenant's code may start more."""
    if not proof.place.groups:
        why = "plain processes have no control group: prove it without --plain"
        return verdicts.skip("memory limit: MemoryMax", why)
    instead = proof.place.daemon(device.uuid, jobs.free_port(), proof.share_mb)
    ran = jobs.run(proof.place, instead, "fill", str(allowed_mb))
    return verdicts.limited_by_group("MemoryMax", proof.share_mb, allowed_mb, ran)


@contextmanager
def _daemon(proof: Proof, daemon: Daemon) -> Iterator[None]:
    """Run a daemon of the middleware, which answers, until the end of the block; raises `Unusable`."""
    job = proof.place.start(daemon, None)
    try:
        proof.place.check(daemon, job, proof.start_timeout)
        yield
    finally:
        job.kill()


def _client(proof: Proof, daemon: Daemon, *words: str) -> Process:
    """Start a program of this host that uses *daemon*; raises `Unusable`."""
    address = Address(proof.place.address, daemon.port)
    variables = proof.middleware.environment(
        daemon.lease_id or "", [ClientDevice(address, daemon.memory_mb)]
    )
    module = f"gsaas.prove.clients.{proof.middleware.name}"
    return places.begin([sys.executable, "-m", module, *words], {**proof.native, **variables})


def _result(job: Process) -> Ran:
    try:
        return job.result()
    finally:
        job.kill()
