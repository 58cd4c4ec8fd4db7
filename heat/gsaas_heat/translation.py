# SPDX-License-Identifier: Apache-2.0
"""The properties of a resource as a request of the API, and a lease as its attributes. Pure: values in, values out.

Heat gives every property and every key of a map that its schema has; those that a template leaves out are None.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

NO_LIMIT = -1
"""The value of `wait` for a request that waits without a limit."""
NOT_QUEUED = "gsaas.lease.not-queued"
"""The API's code for the refusal of a change that only a lease in the queue can have."""

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_HEATS_OWN = ("user_data_format", "user_data_update_policy")
"""Fields of a server that Nova does not have; each has one value only."""

Values = Mapping[str, Any]


def config_id(values: Values) -> str | None:
    """Return the id of the software config that is to be the user data; None if the user data is text, or absent.

    It is what `get_resource` returns for a config.
    """
    text = (values["server"] or {}).get("user_data")
    return text if text is not None and _ID.fullmatch(text) else None


def request(values: Values, name: str, config: Values | None = None) -> dict[str, Any]:
    """Return the fields of `POST /v1/leases` for the properties *values*; *name* is that of a lease without one.

    *config* is the software config that `config_id` returns the id of, None if there is none. Raises `ValueError` for a
    config that is not there, or not text.
    """
    found: dict[str, Any] = {
        "name": values["name"] or name,
        "cgpus": _cgpus(values["cgpus"]),
        "server": None if values["server"] is None else _server(values["server"], config),
    }
    if values["consumer"] is not None:
        found["consumer"] = _given(values["consumer"])
    if values["wait"]:
        found["wait"] = None if values["wait"] == NO_LIMIT else values["wait"]
    if values["priority"]:
        found["priority"] = values["priority"]
    if values["duration"] is not None:
        found["duration"] = values["duration"]
    if values["movable"] not in (None, "idle"):
        found["movable"] = values["movable"]
    return found


def changes(changed: Values, name: str) -> list[dict[str, Any]]:
    """Return the changes of a lease, each a request of its own, for the properties that *changed*: name -> new value.

    One that the API refuses as `NOT_QUEUED` has no effect any more. `wait` cannot be changed: it counts for the next
    lease of the resource.
    """
    found: list[dict[str, Any]] = []
    if "name" in changed:
        found.append({"name": changed["name"] or name})
    if "priority" in changed:
        found.append({"priority": changed["priority"] or 0})
    if "duration" in changed:
        duration = changed["duration"]
        found.append({"ends_at": None} if duration is None else {"duration": duration})
    if "movable" in changed:
        found.append({"movable": changed["movable"] or "idle"})
    return found


def attribute(name: str, lease: Values) -> Any:
    """Return what `get_attr` returns for *lease*, an answer of the API; not for `environment`, which is a request."""
    devices = lease.get("devices") or []
    if name == "masked_addresses":
        return [device["masked_address"] for device in devices]
    if name == "devices":
        return [
            {field: device.get(field) for field in ("index", "masked_address", "memory_mb")}
            for device in devices
        ]
    if name == "server_id":
        return (lease.get("server") or {}).get("id")
    return lease.get(name)


def failure(lease: Values) -> str:
    """Return why a lease cannot be used: what GSaaS says of it."""
    fault = lease.get("fault")
    if not fault:
        return f"lease {lease['id']} is {lease['status']}"
    step = f" at {fault['step']}" if fault.get("step") else ""
    return f"lease {lease['id']} failed{step}: {fault['message']}"


def _cgpus(values: Values) -> dict[str, Any]:
    found = _given(values)
    found.setdefault("mode", "exclusive" if "memory_mb" not in found else "shared")
    return found


def _server(values: Values, config: Values | None) -> dict[str, Any]:
    """Return Nova's fields of a server."""
    found = {name: value for name, value in _given(values).items() if name not in _HEATS_OWN}
    for ours, novas in (("image", "imageRef"), ("flavor", "flavorRef")):
        if ours in found:
            found[novas] = found.pop(ours)
    if "networks" in found:
        found["networks"] = [_network(network) for network in found["networks"]]
    if "security_groups" in found:
        found["security_groups"] = [{"name": name} for name in found["security_groups"]]
    if "user_data" in found:
        text = (
            _text(config, found["user_data"])
            if _ID.fullmatch(found["user_data"])
            else found["user_data"]
        )
        found["user_data"] = b64encode(text.encode()).decode()
    if "scheduler_hints" in found:
        found["os:scheduler_hints"] = found.pop("scheduler_hints")
    return found


def _text(config: Values | None, config_id: str) -> str:
    if config is None:
        raise ValueError(
            f"server.user_data is {config_id}: there is no software config with this id"
        )
    text = config["config"]
    if not isinstance(text, str):
        raise ValueError(
            f"server.user_data is the software config {config_id} of the group {config['group']}, which an agent in "
            "the VM would need; user data is text, as of OS::Heat::SoftwareConfig, CloudConfig or MultipartMime"
        )
    return text


def _network(values: Values) -> dict[str, Any]:
    found = _given(values)
    if "network" in found:
        found["uuid"] = found.pop("network")
    return found


def _given(values: Values) -> dict[str, Any]:
    """Return *values* without those that the template leaves out."""
    return {name: value for name, value in values.items() if value is not None}
