# SPDX-License-Identifier: Apache-2.0
"""Turn a tenant's server fields into the body of a request to Nova. Pure.

1. A field is passed to Nova as the tenant wrote it, or refused by name; none is dropped silently.
2. GSaaS sends a service token that operators allow to choose hosts. So fields that choose a host are refused: Nova
   could not distinguish the tenant's choice from that of GSaaS.
3. The server gets the tag of its lease (`gsaas.cloud.server_tags`), and user data that GSaaS has composed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from gsaas import exceptions
from gsaas.cloud import server_tags

AUTO = "auto"
"""Value of `networks`: Nova chooses the network, if the project has exactly one, or has Neutron make one."""

_PASSED = frozenset(
    {
        "accessIPv4",
        "accessIPv6",
        "adminPass",
        "availability_zone",
        "block_device_mapping_v2",
        "config_drive",
        "description",
        "flavorRef",
        "hostname",
        "imageRef",
        "key_name",
        "metadata",
        "name",
        "networks",
        "OS-DCF:diskConfig",
        "security_groups",
        "tags",
        "trusted_image_certificates",
    }
)
_HINTS = "os:scheduler_hints"
_ALIASES = {
    "image": "imageRef",
    "flavor": "flavorRef",
    "network": "networks",
    "scheduler_hints": _HINTS,
    "OS-SCH-HNT:scheduler_hints": _HINTS,
}
_REFUSED = {
    "host": "a tenant does not choose its VM's host; -locality=local has it run where its GPUs are",
    "hypervisor_hostname": "a tenant does not choose its VM's host",
    "min_count": "a lease has one VM; launch once for each VM you need",
    "max_count": "a lease has one VM; launch once for each VM you need",
    "personality": "Nova does not take files any more; write them with user_data",
}


def named(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of *request* by Nova's own names; raise `ServerRefused` for one that may not be passed on.

    The result never has `user_data`: GSaaS composes it with its own (`gsaas.cloudinit`).
    """
    found: dict[str, Any] = {}
    for field, value in request.items():
        name = name_of(field)
        if field == "network":
            value = [{"uuid": value}]
        if name in _REFUSED:
            _refuse(field, _REFUSED[name])
        if name not in _PASSED | {_HINTS, "user_data"}:
            _refuse(field, "Nova has no such field, or GSaaS does not pass it on")
        if name in found:
            _refuse(field, f"{name} means the same, and both were given; give one of them")
        found[name] = value
    found.pop("user_data", None)
    networks = found.get("networks", AUTO)
    if networks == "none" or not networks:
        _refuse("networks", "a VM without a network could not reach its cGPUs")
    if ":" in str(found.get("availability_zone") or ""):
        _refuse("availability_zone", "it may name a zone, but no host in the zone")
    return found


def name_of(field: str) -> str:
    """Return Nova's own name of a field, which may have a short one."""
    return _ALIASES.get(field, field)


def missing(request: Mapping[str, Any]) -> list[str]:
    """Return which of Nova's fields `imageRef`, `flavorRef` and `networks` are to be added. Raises as `named`."""
    found = named(request)
    has = {
        "imageRef": found.get("imageRef") or found.get("block_device_mapping_v2"),
        "flavorRef": found.get("flavorRef"),
        "networks": found.get("networks"),
    }
    return [name for name, value in has.items() if not value]


def completed(request: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """Return *request* with fields *added*, by Nova's own names, which it has not or has without a value."""
    kept = {field: value for field, value in request.items() if name_of(field) not in added}
    return {**kept, **added}


def fields(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return all fields that Nova needs; raise `ServerRefused` for one that is missing, and as `named`.

    The result always has `networks`, which is never empty.
    """
    found = named(request)
    found.setdefault("networks", AUTO)
    if not found.get("flavorRef"):
        _refuse("flavorRef", "a VM needs a flavor")
    if not found.get("imageRef") and not found.get("block_device_mapping_v2"):
        _refuse("imageRef", "a VM needs an image, or a volume to boot from")
    return found


def body(
    request: Mapping[str, Any], user_data: str, lease_id: str, host: str | None
) -> dict[str, Any]:
    """Return the body of the request that makes the server of a lease, on *host* if given. Raises as `fields`.

    *user_data* is base64, as Nova takes it.
    """
    server = fields(request)
    hints = server.pop(_HINTS, None)
    server["user_data"] = user_data
    server["tags"] = [*server.get("tags", ()), server_tags.tag(lease_id)]
    if host is not None:
        server["host"] = host
    return {"server": server} if hints is None else {"server": server, _HINTS: hints}


def _refuse(field: str, why: str) -> NoReturn:
    raise exceptions.ServerRefused(reason=f"server.{field}: {why}")
