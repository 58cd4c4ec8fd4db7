# SPDX-License-Identifier: Apache-2.0
"""Choose the compute host of a VM that must stay off some hosts: a `remote` lease's must not be on those of its GPUs.

A request to Nova can name one host to use, but no host to avoid. So GSaaS asks Placement, as Nova's own scheduler does,
where the flavor fits, and names the host with the most free memory. Nova checks again that the flavor fits there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gsaas import exceptions
from gsaas.cloud.nova.clients import Clients, translated_errors

PLACEMENT = "1.29"
"""Microversion of Placement, since release Rocky: summaries name the root of each provider tree."""
_MAX_CANDIDATES = 1000
"""Allocation candidates that one request asks for."""


def choose(
    clients: Clients, flavor: Mapping[str, Any], request: Mapping[str, Any], avoid: Sequence[str]
) -> str:
    """Return the host with the most free memory that fits *flavor* and is not in *avoid*.

    *request* is the server's fields by Nova's names. *clients* are those of the service user. Raises
    `ServerRefused` if there is none, `CloudUnavailable` and `RequestRejected` as the services answer.
    """
    fitting = _candidates(clients, flavor, volume_boot=not request.get("imageRef"))
    with translated_errors("Nova"):
        hypervisors = clients.nova.hypervisors.list(detailed=True)
    zone = request.get("availability_zone")
    usable = _usable(clients, zone)
    free: dict[str, float] = {
        hypervisor.service["host"]: fitting[hypervisor.id]
        for hypervisor in hypervisors
        if hypervisor.id in fitting and hypervisor.service["host"] in usable
    }
    for name in avoid:
        free.pop(name, None)
    if not free:
        raise exceptions.ServerRefused(
            reason="no compute host but those of its GPUs has room for the VM; "
            "choose a smaller flavor, or another locality"
        )
    return max(sorted(free), key=lambda name: free[name])  # sorted: equal hosts in a fixed order


def compute_hosts(clients: Clients) -> list[str]:
    """Return the names of the hosts on which Nova makes servers now, sorted."""
    return sorted(_usable(clients, None))


def _usable(clients: Clients, zone: str | None) -> set[str]:
    """Return the hosts in availability *zone* (None: in any) whose nova-compute is up and enabled."""
    with translated_errors("Nova"):
        services = clients.nova.services.list(binary="nova-compute")
    return {
        each.host
        for each in services
        if (each.state, each.status) == ("up", "enabled") and zone in (None, each.zone)
    }


def _candidates(clients: Clients, flavor: Mapping[str, Any], volume_boot: bool) -> dict[str, float]:
    """Return root provider -> free memory in MiB, for every provider that fits the flavor."""
    resources, traits = placement_query(flavor, volume_boot)
    query = {
        "resources": ",".join(f"{name}:{amount}" for name, amount in sorted(resources.items())),
        "limit": _MAX_CANDIDATES,
    }
    if traits:
        query["required"] = ",".join(sorted(traits))
    with translated_errors("Placement"):
        answer = clients.sdk.placement.get(
            "/allocation_candidates", params=query, microversion=PLACEMENT
        )
    if answer.status_code >= 400:
        raise exceptions.CloudUnavailable(reason=f"Placement failed (HTTP {answer.status_code})")
    return free_memory(answer.json()["provider_summaries"].values())


def placement_query(
    flavor: Mapping[str, Any], volume_boot: bool
) -> tuple[dict[str, int], set[str]]:
    """Return what a flavor requires of Placement: amounts by resource class, and traits (`!NAME`: a forbidden one)."""
    specs = flavor.get("extra_specs", {})
    dedicated = specs.get("hw:cpu_policy") == "dedicated"
    disk = 0 if volume_boot else flavor["disk"]
    swap = flavor.get("swap") or 0  # MiB; for a flavor without swap Nova writes an empty string
    resources = {
        "PCPU" if dedicated else "VCPU": flavor["vcpus"],
        "MEMORY_MB": flavor["ram"],
        "DISK_GB": disk + flavor.get("OS-FLV-EXT-DATA:ephemeral", 0) + math.ceil(swap / 1024),
    }
    traits = set()
    for name, value in specs.items():
        kind, _, what = name.partition(":")
        if kind == "resources":
            resources[what] = int(value)
        elif kind == "trait":
            traits.add(what if value == "required" else f"!{what}")
    return {name: amount for name, amount in resources.items() if amount}, traits


def free_memory(summaries: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return root provider -> free memory in MiB, from Placement's provider summaries."""
    free: dict[str, float] = {}
    for summary in summaries:
        root = summary["root_provider_uuid"]
        memory = summary["resources"].get("MEMORY_MB")
        if memory is not None:
            free[root] = free.get(root, 0) + memory["capacity"] - memory["used"]
    return free
