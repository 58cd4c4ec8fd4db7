"""What must be true of a lease, judged from what its VM saw and what an administrator is told.

Values in, sentences out: `gsaas.standalone.demo.story` does the asking. A *lease* here is always an
administrator's view of one, which names the real GPUs.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Lease = Mapping[str, Any]
Probes = Mapping[str, Mapping[str, Any]]
"""Address (`ip:port`) -> what `gsaas.standalone.demo.probe` found there."""


@dataclass(frozen=True)
class Proof:
    holds: bool
    sentence: str


def address_after(masked_address: str) -> str:
    """The masked address that follows, on the same port."""
    ip, _, port = masked_address.rpartition(":")
    return f"{ipaddress.ip_address(ip) + 1}:{port}"


def environment_is_masked(environment: Mapping[str, str], lease: Lease) -> Proof:
    """The environment names every masked address, and nothing of what is behind them."""
    text = " ".join(environment.values())
    wanted = [_ip(device["masked_address"]) for device in lease["devices"]]
    missing = [ip for ip in wanted if ip not in text]
    secrets = {
        secret
        for device in lease["devices"]
        for secret in (device["gpu_uuid"], device["gpu_host"], _ip(device["real_address"]))
    }
    shown = sorted(secret for secret in secrets if secret in text)
    if missing or shown:
        return Proof(False, f"the environment lacks {missing} and shows {shown}")
    return Proof(
        True, "the environment names every masked address, and no GPU, host or real address"
    )


def daemons_answer(lease: Lease, probes: Probes) -> list[Proof]:
    """Each masked address leads to the daemon of exactly the GPU that was claimed for it."""
    return [_answered(device, probes[device["masked_address"]]) for device in lease["devices"]]


def _answered(device: Mapping[str, Any], probe: Mapping[str, Any]) -> Proof:
    address, claimed = device["masked_address"], f"{device['gpu_uuid']} on {device['gpu_host']}"
    if "answer" not in probe:
        return Proof(False, f"{address} should lead to {claimed}, but: {probe['error']}")
    answered = f"{probe['answer']['gpu']} on {probe['answer']['host']}"
    if answered != claimed:
        return Proof(False, f"{address} should lead to {claimed}, but {answered} answers")
    return Proof(True, f"{address} leads to {claimed}, as claimed")


def daemons_of_their_own(lease: Lease) -> Proof:
    """No two cGPUs share a daemon, even on one GPU."""
    real = [device["real_address"] for device in lease["devices"]]
    return Proof(
        len(set(real)) == len(real),
        f"each of its {len(real)} cGPUs has a daemon of its own, at a port of its own",
    )


def unanswered(address: str, what: str, probes: Probes) -> Proof:
    """Nothing answers at *address*; *what* says why that matters."""
    probe = probes[address]
    if "answer" in probe:
        return Proof(False, f"{address}, {what}, should not answer, but did: {probe['answer']}")
    return Proof(True, f"{address}, {what}: {probe['error'].lower()}")


def led_apart(one: Lease, other: Lease) -> Proof:
    """The same masked address leads two VMs to two different GPUs."""
    mine, theirs = one["devices"][0], other["devices"][0]
    apart = (
        mine["masked_address"] == theirs["masked_address"]
        and mine["gpu_uuid"] != theirs["gpu_uuid"]
    )
    return Proof(apart, f"{mine['masked_address']} leads each of the two VMs to a GPU of its own")


def all_on_one_host(lease: Lease) -> Proof:
    """With -locality=local, the VM runs on the host that owns all its GPUs."""
    owners = sorted({device["gpu_host"] for device in lease["devices"]})
    host = lease["server"]["host"]
    if owners == [host]:
        return Proof(True, f"the VM runs on {host}, which owns all its GPUs")
    return Proof(False, f"the VM runs on {host}, and its GPUs are on {', '.join(owners)}")


def never_more_than_there_is(gpus: Sequence[Mapping[str, Any]]) -> Proof:
    """No GPU gives more memory than it has, and an exclusive one has a single holder."""
    wrong = [
        gpu["uuid"]
        for gpu in gpus
        if gpu["used_mb"] > gpu["memory_mb"]
        or (gpu["mode"] == "exclusive" and len(gpu["leases"]) != 1)
    ]
    if wrong:
        return Proof(False, f"over-committed: {', '.join(wrong)}")
    return Proof(True, "no GPU gives more memory than it has, exclusive ones have one holder")


def _ip(address: str) -> str:
    return address.rpartition(":")[0]
