# SPDX-License-Identifier: Apache-2.0
"""Prove that a lease is as promised, from what its VM reaches and what the API shows an administrator. Pure.

The steps of a demonstration collect the facts. A *lease* here is always the API's answer to an administrator,
which names the real GPUs.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gsaas.remoting.tvm import Tvm

Lease = Mapping[str, Any]
TOLERANCE = 1e-3
"""The largest difference between two right products."""
OWN_MB = Tvm.daemon_template.own_memory_mb
"""MiB that a daemon may have besides its share: a program can get some of it."""
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


def computes(lease: Lease, results: Sequence[Mapping[str, Any]]) -> list[Proof]:
    """Prove that a program has computed on each cGPU of *lease* what its VM computes, by its *results*."""
    wrong = [each for each in results if each.get("error") or each["largest_error"] > TOLERANCE]
    by_cgpu = {each["cgpu"] for each in results if each["products"]} - {
        each["cgpu"] for each in wrong
    }
    largest = max((each["largest_error"] for each in results), default=0.0)
    return [
        Proof(
            device["index"] in by_cgpu,
            f"cGPU {device['index']} has multiplied as the VM does itself (difference {largest:.0e})",
        )
        for device in lease["devices"]
    ]


def is_kept_to_its_share(share_mb: int, results: Sequence[Mapping[str, Any]]) -> Proof:
    """Prove that a program that has allocated all it could got an error, and not more than what its daemon may have."""
    (result,) = results or ({},)
    error, taken = result.get("error"), result.get("allocated_mb", 0)
    return Proof(
        bool(error) and 0 < taken <= share_mb + OWN_MB,
        f"a program got {taken} MiB of a cGPU of {share_mb} MiB, whose daemon has {OWN_MB} MiB for itself, and then "
        f"an error: {error}",
    )


def was_cut_off(lease: Lease, began: float, results: Sequence[Mapping[str, Any]]) -> list[Proof]:
    """Prove that a program computed on each cGPU of *lease* until its release, which *began* then by the same clock."""
    found = {each["cgpu"]: each for each in results}
    proofs = []
    for device in lease["devices"]:
        result = found.get(device["index"], {"products": 0, "largest_error": 0.0})
        ended = bool(result.get("error")) and result["at"] >= began
        right = result["products"] > 0 and result["largest_error"] <= TOLERANCE
        after = f"{result['at'] - began:.2f} s after the command" if ended else "not"
        proofs.append(
            Proof(
                ended and right,
                f"cGPU {device['index']} computed {result['products']} right products, and was cut off {after}",
            )
        )
    return proofs


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
