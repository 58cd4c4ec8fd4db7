# SPDX-License-Identifier: Apache-2.0
"""Prove that a lease is as promised, from what its VM reaches and what the API shows an administrator. Pure.

`gsaas.standalone.demo.demonstration` collects the facts. A *lease* here is always the API's answer to an administrator,
which names the real GPUs.
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
    """The result of one check: whether the statement is true, and the sentence to print."""

    holds: bool
    sentence: str


def address_after(masked_address: str) -> str:
    """Return the next masked address, with the same port."""
    ip, _, port = masked_address.rpartition(":")
    return f"{ipaddress.ip_address(ip) + 1}:{port}"


def environment_is_masked(environment: Mapping[str, str], lease: Lease) -> Proof:
    """Prove that the environment names every masked address, and no GPU, host or real address behind one."""
    text = " ".join(environment.values())
    expected = [_ip(device["masked_address"]) for device in lease["devices"]]
    missing = [ip for ip in expected if ip not in text]
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
    """Prove that each masked address leads to the daemon of exactly the GPU that was claimed for it."""
    return [
        _right_gpu_answers(device, probes[device["masked_address"]]) for device in lease["devices"]
    ]


def _right_gpu_answers(device: Mapping[str, Any], probe: Mapping[str, Any]) -> Proof:
    address, claimed = device["masked_address"], f"{device['gpu_uuid']} on {device['gpu_host']}"
    if "answer" not in probe:
        return Proof(False, f"{address} should lead to {claimed}, but: {probe['error']}")
    answered = f"{probe['answer']['gpu']} on {probe['answer']['host']}"
    if answered != claimed:
        return Proof(False, f"{address} should lead to {claimed}, but {answered} answers")
    return Proof(True, f"{address} leads to {claimed}, as claimed")


def daemons_are_separate(lease: Lease) -> Proof:
    """Prove that no two cGPUs share a daemon, even on one GPU."""
    real = [device["real_address"] for device in lease["devices"]]
    return Proof(
        len(set(real)) == len(real),
        f"each of its {len(real)} cGPUs has a daemon of its own, at a port of its own",
    )


def does_not_answer(address: str, what: str, probes: Probes) -> Proof:
    """Prove that nothing answers at *address*; *what* says what the address is."""
    probe = probes[address]
    if "answer" in probe:
        return Proof(False, f"{address}, {what}, should not answer, but did: {probe['answer']}")
    return Proof(True, f"{address}, {what}: {probe['error'].lower()}")


def same_address_leads_to_different_gpus(one: Lease, other: Lease) -> Proof:
    """Prove that the same masked address leads two VMs to two different GPUs."""
    first, second = one["devices"][0], other["devices"][0]
    apart = (
        first["masked_address"] == second["masked_address"]
        and first["gpu_uuid"] != second["gpu_uuid"]
    )
    return Proof(apart, f"{first['masked_address']} leads each of the two VMs to a GPU of its own")


def all_on_one_host(lease: Lease) -> Proof:
    """Prove that the VM runs on the host of all its GPUs, as -locality=local promises."""
    gpu_hosts = sorted({device["gpu_host"] for device in lease["devices"]})
    host = lease["server"]["host"]
    if gpu_hosts == [host]:
        return Proof(True, f"the VM runs on {host}, which has all its GPUs")
    return Proof(False, f"the VM runs on {host}, and its GPUs are on {', '.join(gpu_hosts)}")


def no_gpu_is_over_committed(gpus: Sequence[Mapping[str, Any]]) -> Proof:
    """Prove that no more memory of a GPU is claimed than it has, and that an exclusive GPU has one lease only."""
    wrong = [
        gpu["uuid"]
        for gpu in gpus
        if gpu["used_mb"] > gpu["memory_mb"]
        or (gpu["mode"] == "exclusive" and len(gpu["leases"]) != 1)
    ]
    if wrong:
        return Proof(False, f"over-committed: {', '.join(wrong)}")
    return Proof(True, "no GPU gives more memory than it has, and each exclusive GPU has one lease")


def _ip(address: str) -> str:
    return address.rpartition(":")[0]
