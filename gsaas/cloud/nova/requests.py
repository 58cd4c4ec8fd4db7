"""A tenant's server fields as Nova takes them: values in, the body of Nova's request out.

1. A field goes to Nova as the tenant wrote it, or it is refused by name: none is dropped.
2. GSaaS asks Nova with a service token that operators let choose hosts. So the fields that choose one are never the
   tenant's: Nova would take our word for his.
3. The server bears its lease's tag (`gsaas.cloud.marks`), and user data that GSaaS has composed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gsaas import exceptions
from gsaas.cloud import marks

AUTO = "auto"
"""Nova finds a network by itself; it does if the project has just one."""

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
_SPELLINGS = {
    "image": "imageRef",
    "flavor": "flavorRef",
    "scheduler_hints": _HINTS,
    "OS-SCH-HNT:scheduler_hints": _HINTS,
}
_REFUSED = {
    "host": "a tenant does not choose its VM's host; -locality=local has it run where its GPUs are",
    "hypervisor_hostname": "a tenant does not choose its VM's host",
    "min_count": "a lease has one VM; launch as often as you need",
    "max_count": "a lease has one VM; launch as often as you need",
    "personality": "Nova takes no files any more; user_data does it",
}


def fields(request: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of *request* by Nova's own names; raises `ServerRefused` for those that may not be passed on.

    `networks` is always among them, and never empty. `user_data` is not: it was composed with ours.
    """
    named: dict[str, Any] = {}
    for field, value in request.items():
        name = _SPELLINGS.get(field, field)
        if field == "network":
            name, value = "networks", [{"uuid": value}]
        if name in _REFUSED:
            _refuse(field, _REFUSED[name])
        if name not in _PASSED | {_HINTS, "user_data"}:
            _refuse(field, "Nova has no such field, or GSaaS does not pass it on")
        if name in named:
            _refuse(field, f"{name} says the same, and both were given")
        named[name] = value
    named.pop("user_data", None)
    networks = named.setdefault("networks", AUTO)
    if networks == "none" or not networks:
        _refuse("networks", "a VM without a network could not reach its cGPUs")
    if ":" in str(named.get("availability_zone") or ""):
        _refuse("availability_zone", "it may name a zone, and no host in it")
    if not named.get("flavorRef"):
        _refuse("flavorRef", "a VM needs a flavor")
    if not named.get("imageRef") and not named.get("block_device_mapping_v2"):
        _refuse("imageRef", "a VM needs an image, or a volume to boot from")
    return named


def body(
    request: Mapping[str, Any], user_data: str, lease_id: str, host: str | None
) -> dict[str, Any]:
    """The body of Nova's request for the server of a lease; *host* pins it. Raises as `fields`."""
    server = fields(request)
    hints = server.pop(_HINTS, None)
    server["user_data"] = user_data
    server["tags"] = [*server.get("tags", ()), marks.tag(lease_id)]
    if host is not None:
        server["host"] = host
    return {"server": server} if hints is None else {"server": server, _HINTS: hints}


def _refuse(field: str, why: str) -> None:
    raise exceptions.ServerRefused(reason=f"server.{field}: {why}")
