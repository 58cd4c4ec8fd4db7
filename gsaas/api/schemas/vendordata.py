# SPDX-License-Identifier: Apache-2.0
"""Schemas of vendor data: what Nova's provider DynamicJSON sends, and what it passes on to the server."""

from __future__ import annotations

from gsaas.api.schemas import common

ASK = {
    "type": "object",
    "description": "What Nova knows of the server. Fields other than these, such as those of later releases, are "
    "ignored.",
    "properties": {
        "instance-id": {
            "type": "string",
            "pattern": "^[0-9a-fA-F-]{36}$",
            "description": "The id of the server. GSaaS asks Nova for its properties and its owner.",
        },
        "project-id": {
            **common.TEXT,
            "description": "The server's project; one that is not the server's own is refused.",
        },
        "boot-roles": {
            "type": ["string", "null"],
            "maxLength": 65535,
            "description": "The roles of the user who made the server, separated by commas.",
        },
    },
    "required": ["instance-id", "project-id"],
    "title": "VendordataRequest",
}

ANSWER = {
    "type": ["string", "null"],
    "description": "A script for cloud-init (`#cloud-boothook`), which gives the server the environment of its cGPUs; "
    "null for a server that has none.",
}
