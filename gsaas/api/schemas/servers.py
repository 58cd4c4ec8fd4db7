# SPDX-License-Identifier: Apache-2.0
"""Schema of a lease's server: Nova's own fields, with the types that Nova gives them.

Only the shape is checked here, so that no other code gets a number where it expects a list. Which fields a cloud takes,
and whether an image or a network exists, the cloud says (`gsaas.cloud`).
"""

from __future__ import annotations

from typing import Any

_STRING: dict[str, Any] = {"type": "string"}
_STRING_OR_NULL: dict[str, Any] = {"type": ["string", "null"]}
_OBJECT: dict[str, Any] = {"type": "object"}
MOST_NETWORKS = 64
"""Networks, and security groups, of one server: Neutron is asked for each of them."""
MOST_TAGS = 49
"""Tags of one server: Nova takes 50, and GSaaS adds one."""


def _names(*names: str) -> dict[str, Any]:
    return {"type": "object", "properties": dict.fromkeys(names, _STRING_OR_NULL)}


def _list(items: dict[str, Any], most: int, description: str) -> dict[str, Any]:
    return {"type": "array", "items": items, "maxItems": most, "description": description}


FIELDS: dict[str, dict[str, Any]] = {
    "name": _STRING,
    "hostname": _STRING_OR_NULL,
    "description": _STRING_OR_NULL,
    "imageRef": _STRING_OR_NULL,
    "image": _STRING_OR_NULL,
    "flavorRef": {"type": ["string", "integer"]},
    "flavor": {"type": ["string", "integer"]},
    "networks": {
        **_list(
            _names("uuid", "port", "fixed_ip", "tag"),
            MOST_NETWORKS,
            f"at most {MOST_NETWORKS} objects with a uuid or a port; or auto",
        ),
        "type": ["array", "string"],
    },
    "network": _STRING,
    "key_name": _STRING_OR_NULL,
    "security_groups": _list(
        _names("name"), MOST_NETWORKS, f"at most {MOST_NETWORKS} objects with a name"
    ),
    "availability_zone": _STRING_OR_NULL,
    "metadata": _OBJECT,
    "tags": _list(_STRING, MOST_TAGS, f"at most {MOST_TAGS} texts"),
    "block_device_mapping_v2": _list(_OBJECT, 255, "at most 255 objects"),
    "config_drive": {"type": ["boolean", "string", "null"]},
    "adminPass": _STRING,
    "accessIPv4": _STRING,
    "accessIPv6": _STRING,
    "OS-DCF:diskConfig": _STRING,
    "trusted_image_certificates": {
        **_list(_STRING, 50, "at most 50 ids of certificates, or null"),
        "type": ["array", "null"],
    },
    "os:scheduler_hints": _OBJECT,
    "OS-SCH-HNT:scheduler_hints": _OBJECT,
    "scheduler_hints": _OBJECT,
    "user_data": {
        "type": "string",
        "contentEncoding": "base64",
        "description": "user data in base64, as Nova requires",
    },
}

SERVER = {
    "type": ["object", "null"],
    "description": "Nova's own fields of a server: imageRef, flavorRef, networks, "
    "key_name, user_data and so on. null: no VM is created; an existing program or VM uses the "
    "cGPUs.",
    "properties": FIELDS,
    "default": {},
}
