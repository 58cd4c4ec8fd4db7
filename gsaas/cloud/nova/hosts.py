"""Which compute host, where Nova is not to choose: the VM of a `remote` lease must stay off the GPUs' hosts.

Nova can be told one host to take, but none to avoid. So Placement is asked, as Nova's own scheduler does, where the
flavor fits, and the host with the most free memory is named. Nova checks again that it fits there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gsaas import exceptions
from gsaas.cloud.nova.clients import Clients, asking

PLACEMENT = "1.29"
"""Microversion, from release Rocky on: summaries name each provider's root."""
_MOST = 1000
"""Candidates asked for."""


def choose(
    service: Clients, flavor: Mapping[str, Any], request: Mapping[str, Any], avoid: Sequence[str]
) -> str:
    """The name of a host other than those to *avoid* that can take the server; raises `ServerRefused`."""
    fitting = _candidates(service, flavor, volume_boot=not request.get("imageRef"))
    with asking("Nova"):
        hypervisors = service.nova.hypervisors.list(detailed=True)
    zone = request.get("availability_zone")
    usable = _usable(service, zone)
    free = {
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
    return max(sorted(free), key=free.__getitem__)


def compute_hosts(service: Clients) -> list[str]:
    """Names of the hosts on which Nova makes servers now."""
    return sorted(_usable(service, None))


def _usable(service: Clients, zone: str | None) -> set[str]:
    with asking("Nova"):
        services = service.nova.services.list(binary="nova-compute")
    return {
        each.host
        for each in services
        if (each.state, each.status) == ("up", "enabled") and zone in (None, each.zone)
    }


def _candidates(service: Clients, flavor: Mapping[str, Any], volume_boot: bool) -> dict[str, float]:
    """Root provider -> MiB of memory free, for all that could take the flavor."""
    resources, traits = needs(flavor, volume_boot)
    query = {
        "resources": ",".join(f"{name}:{amount}" for name, amount in sorted(resources.items())),
        "limit": _MOST,
    }
    if traits:
        query["required"] = ",".join(sorted(traits))
    with asking("Placement"):
        answer = service.sdk.placement.get(
            "/allocation_candidates", params=query, microversion=PLACEMENT
        )
    if answer.status_code >= 400:
        raise exceptions.CloudUnavailable(reason=f"Placement failed (HTTP {answer.status_code})")
    return free_memory(answer.json()["provider_summaries"].values())


def needs(flavor: Mapping[str, Any], volume_boot: bool) -> tuple[dict[str, int], set[str]]:
    """What a flavor asks of Placement: amounts by resource class, and traits (with `!`: none of that)."""
    specs = flavor.get("extra_specs", {})
    dedicated = specs.get("hw:cpu_policy") == "dedicated"
    disk = 0 if volume_boot else flavor["disk"]
    swap = flavor.get("swap") or 0  # MiB; Nova writes none as an empty text
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
    """Root provider -> MiB of memory free, from Placement's summaries."""
    free: dict[str, float] = {}
    for summary in summaries:
        root = summary["root_provider_uuid"]
        memory = summary["resources"].get("MEMORY_MB")
        if memory is not None:
            free[root] = free.get(root, 0) + memory["capacity"] - memory["used"]
    return free
