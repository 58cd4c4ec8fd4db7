# SPDX-License-Identifier: Apache-2.0
"""The proof of a GPU host: measures, and has `verdicts` judge.

1. What the host tells about itself.
2. On each CPU device: its limits. On each GPU: the CUDA program natively, then in the place of a tenant's daemon, with
   its walls; over its memory limit while a neighbour computes; what it sees of its host.
3. The middleware's daemon as a tenant of a GPU gets it: until it answers, and the program through it, if its client is
   here.
4. The end: a daemon is killed while a program computes through it, and the GPU's memory has to be free again.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager

from gsaas.objects.address import Address
from gsaas.objects.daemon import Daemon
from gsaas.objects.device_kinds import CPU, kind_of
from gsaas.prove import jobs, limits, program, verdicts
from gsaas.prove import place as places
from gsaas.prove.jobs import Proof
from gsaas.prove.place import Job, Process, Unusable
from gsaas.prove.verdicts import Gpu, Line, Ran
from gsaas.remoting.base import ClientDevice

FREE_TIMEOUT = 30.0
"""Seconds within which memory has to be free again."""
RELEASED_SECONDS = 60.0
"""For how long a program would compute whose daemon is killed."""
SUSPENDED_SECONDS = 5.0
"""For how long a program computes that is suspended and resumed."""
POINTERS = 32
"""Device pointers of each of two daemons that are compared."""
POINTERS_NAME = "device pointers of two daemons"
RELEASE = "release under load"
BESIDE_RELEASE = "neighbour of a release"
MEMORY_AFTER = "memory after a release"
SLACK_MB = 32
"""By how many MiB the memory in use may differ before and after: the driver has some for itself. A context has more."""


def lines(proof: Proof) -> Generator[Line, None, None]:
    """Yield a line for each check, as soon as it is done."""
    yield from host(proof)
    several = len(proof.facts.gpus) > 1
    for number, gpu in enumerate(proof.facts.gpus):
        one = limits.on_a_cpu_device if kind_of(gpu.uuid) == CPU else one_gpu
        for line in one(proof, gpu):
            yield verdicts.numbered(line, number) if several else line


def host(proof: Proof) -> Iterator[Line]:
    """Yield the lines about what the host reports."""
    facts = proof.facts
    if any(kind_of(gpu.uuid) == CPU for gpu in facts.gpus):
        yield from map(verdicts.cpu_device, facts.gpus)
    else:
        yield from _driver_and_gpus(proof)
    yield verdicts.ports(facts.taken_ports)
    lease = proof.place.settings.lease_ports
    yield verdicts.ephemeral_ports((lease.first, lease.last), facts.local_ports)
    yield from verdicts.network(facts.mtu, facts.speed_mbit, facts.interface)


def _driver_and_gpus(proof: Proof) -> Iterator[Line]:
    facts = proof.facts
    yield verdicts.driver(facts.driver)
    for what, error in facts.unreadable.items():
        yield verdicts.unreadable(what, error)
    if not facts.gpus and not facts.unreadable:
        yield verdicts.fail("GPUs", "none", "nvidia-smi has to list them; is the driver loaded?")
    for gpu in facts.gpus:
        yield from verdicts.gpu(gpu, uses_mps=proof.memory_limit == "mps")
    yield from verdicts.mps(facts.mps, limit=proof.memory_limit)
    yield verdicts.device_nodes(facts.missing_nodes)


def one_gpu(proof: Proof, gpu: Gpu) -> Iterator[Line]:
    """Yield the lines about one GPU."""
    if gpu.mig:
        yield verdicts.skip("programs", "MIG is on: instances are not proved; see nvidia-smi -mig")
        return
    native_environment = {**proof.native, "CUDA_VISIBLE_DEVICES": gpu.uuid}
    native = places.run(["compute"], native_environment)
    yield from verdicts.computed("native", native, on=gpu.uuid)
    if native.problem is not None:
        return
    yield from _in_place_of_a_daemon(proof, gpu, native)
    yield from through_the_middleware(proof, gpu, native)
    yield suspended(proof, native_environment)


def _in_place_of_a_daemon(proof: Proof, gpu: Gpu, native: Ran) -> Iterator[Line]:
    place = proof.place
    whole = place.daemon(gpu.uuid, jobs.free_port(), None)
    ran = jobs.run(place, whole, "compute")
    yield from verdicts.computed("in a daemon's place", ran, native, on=gpu.uuid)
    seen = jobs.run(place, whole, "look")
    yield from verdicts.confined(seen, gpu.uuid, own_devices=place.settings.own_devices)
    yield from limits.on_a_gpu(proof, gpu)
    before = jobs.memory_mb(proof, gpu)
    try:
        with jobs.computing(place, whole, jobs.NEIGHBOUR_SECONDS):
            pass
    except Unusable as error:
        yield verdicts.fail("end of a program", "not tried", str(error))
        return
    yield _freed("end of a program", proof, gpu, before)


def through_the_middleware(proof: Proof, gpu: Gpu, native: Ran) -> Iterator[Line]:
    """Yield the lines about the middleware's daemon, and about programs that use it."""
    name = f"daemon of {proof.middleware.name}"
    daemon = proof.place.daemon(gpu.uuid, jobs.free_port(), proof.share_mb)
    before = jobs.memory_mb(proof, gpu)  # without the daemon, which has some itself
    began = time.monotonic()
    try:
        job = proof.place.start(daemon, None)
    except Unusable as error:
        yield verdicts.fail(name, "not started", str(error))
        return
    try:
        _, version = proof.place.check(daemon, job, proof.start_timeout)
        took = time.monotonic() - began
        told = f", version {version}" if version else ""
        yield verdicts.ok(
            name, f"answers after {took * 1e3:.0f} ms{told}", seconds=took, version=version
        )
        yield from _with_client(proof, gpu, daemon, job, native, before)
    except Unusable as error:
        yield verdicts.fail(name, "does not answer", str(error))
    finally:
        job.kill()


def _with_client(
    proof: Proof, gpu: Gpu, daemon: Daemon, job: Job, native: Ran, before: int | None
) -> Iterator[Line]:
    """Yield the lines about programs that use a daemon over the network.

    *before* are the MiB of the GPU that were in use before there was the daemon.
    """
    name = f"through {proof.middleware.name}"
    if proof.libraries is None:
        why = "this host has no client library of it; [remoting]library_path names the folder, or use prove path"
        yield verdicts.skip(f"{name}: program", why)
        return
    ran = places.run(["compute"], _client(proof, daemon))
    computed = verdicts.computed(name, ran, native, on=gpu.uuid)
    yield from computed
    if verdicts.failed(computed):
        for rest in (POINTERS_NAME, RELEASE, BESIDE_RELEASE, MEMORY_AFTER):
            yield verdicts.skip(rest, "no program computes correctly through the middleware")
        return
    yield _pointers(proof, gpu, daemon)
    yield from _released(proof, gpu, daemon, job)
    yield _freed(MEMORY_AFTER, proof, gpu, before)


def _released(proof: Proof, gpu: Gpu, daemon: Daemon, job: Job) -> Iterator[Line]:
    """Kill a daemon while a program computes through it, and another tenant's program on the same GPU.

    Yield the lines about what becomes of the two. The other one shares the MPS server, if there is one: NVIDIA's
    documentation does not promise that it survives a client that is killed.
    """
    beside = proof.place.daemon(gpu.uuid, jobs.free_port(), proof.share_mb)
    try:
        with (
            jobs.computing(proof.place, beside, jobs.NEIGHBOUR_SECONDS) as neighbour,
            _on_this_host(_client(proof, daemon), RELEASED_SECONDS) as client,
        ):
            killed_at = time.monotonic()
            job.kill()
            ended = client.ended_within(FREE_TIMEOUT)
            seconds = time.monotonic() - killed_at
            other = neighbour.result(jobs.NEIGHBOUR_SECONDS + places.TIMEOUT)
    except Unusable as error:
        yield verdicts.fail(RELEASE, "not tried", str(error))
        return
    if ended:
        yield verdicts.ok(RELEASE, f"the program was told after {seconds:.2f} s")
    else:
        mend = "programs hang when their cGPU is released: tell tenants to set time limits of their own"
        yield verdicts.warn(RELEASE, f"the program hangs for {FREE_TIMEOUT:g} s", mend)
    yield verdicts.undisturbed(BESIDE_RELEASE, other)


def _pointers(proof: Proof, gpu: Gpu, first: Daemon) -> Line:
    other = next((each for each in proof.facts.gpus if each != gpu), gpu)
    second = proof.place.daemon(other.uuid, jobs.free_port(), proof.share_mb)
    try:
        job = proof.place.start(second, None)
    except Unusable as error:
        return verdicts.skip(POINTERS_NAME, str(error))
    try:
        proof.place.check(second, job, proof.start_timeout)
        found = [
            places.run(["pointers", str(POINTERS)], _client(proof, daemon)).result or {}
            for daemon in (first, second)
        ]
    except Unusable as error:
        return verdicts.skip(POINTERS_NAME, str(error))
    finally:
        job.kill()
    return verdicts.pointers(found)


def _client(proof: Proof, daemon: Daemon) -> dict[str, str]:
    """Return the environment of a consumer of *daemon*."""
    address = Address(proof.place.address, daemon.port)
    variables = proof.middleware.environment(
        daemon.lease_id or "", [ClientDevice(address, daemon.memory_mb)]
    )
    return {**variables, "LD_LIBRARY_PATH": str(proof.libraries)}


@contextmanager
def _on_this_host(environment: Mapping[str, str], seconds: float) -> Iterator[Process]:
    """Have a program of this host itself, without a daemon, compute as `_computing` does; raises `Unusable`."""
    command = [sys.executable, program.__file__, "occupy", str(jobs.NEIGHBOUR_MIB), str(seconds)]
    with jobs.once_computing(places.begin(command, environment)) as job:
        yield job


def suspended(proof: Proof, environment: Mapping[str, str]) -> Line:
    """Return the line about a program that is suspended and resumed while it computes."""
    tool = shutil.which("cuda-checkpoint")
    driver = proof.facts.driver
    if tool is None:
        return verdicts.suspended(driver, False, None)
    try:
        with _on_this_host(environment, SUSPENDED_SECONDS) as run:
            outcome = _toggled(tool, run.pid) or _toggled(tool, run.pid)  # suspend, resume
            if outcome is None:
                ran = run.result(SUSPENDED_SECONDS + FREE_TIMEOUT)
                wrong = (ran.result or {}).get("failed")
                outcome = ran.problem or ("the program computed something wrong" if wrong else None)
    except Unusable as error:
        outcome = str(error)
    return verdicts.suspended(driver, True, outcome)


def _toggled(tool: str, pid: int) -> str | None:
    """Suspend a program, or resume it if it is suspended; return why that failed, None if it did not."""
    try:
        done = subprocess.run(
            [tool, "--toggle", "--pid", str(pid)],
            capture_output=True,
            text=True,
            timeout=FREE_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it does not end within {FREE_TIMEOUT:g} s"
    except OSError as error:
        return f"it cannot be run: {error.strerror}"
    return done.stderr.strip() or "it fails" if done.returncode else None


def _freed(name: str, proof: Proof, gpu: Gpu, before: int | None) -> Line:
    """Wait until about as much memory is in use as *before*; return the line about that."""
    began = time.monotonic()
    while True:
        after = jobs.memory_mb(proof, gpu)
        seconds = time.monotonic() - began
        if before is None or after is None or after <= before + SLACK_MB:
            return verdicts.freed(name, before, after, seconds)
        if seconds > FREE_TIMEOUT:
            return verdicts.freed(name, before, after, None)
        time.sleep(places.POLL)
