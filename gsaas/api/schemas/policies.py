# SPDX-License-Identifier: Apache-2.0
"""Schemas of scheduling policies."""

from __future__ import annotations

from gsaas.api.schemas import common

PROPERTIES = {
    "name": {"type": "string"},
    "default": {"type": "boolean", "description": "Whether requests that name no policy use it."},
    "configured": {
        "type": "boolean",
        "description": "Whether it is the default in the configuration, which an admin may override.",
    },
    "allowed": {"type": "boolean", "description": "Whether requests may name it."},
    "source": {"type": "string", "description": "The system or paper that it comes from."},
    "description": {"type": "string", "description": "What it does, in one line."},
}

MANY = common.record(
    {"policies": {"type": "array", "items": common.record(PROPERTIES, title="Policy")}}
)
ONE = common.record(
    {
        "policy": common.record(
            {
                **PROPERTIES,
                "about": {
                    "type": "string",
                    "description": "Its advantages and disadvantages.",
                },
            },
            title="PolicyInFull",
        )
    }
)

UPDATE = common.record(
    {
        "policies": common.record(
            {
                "default": {
                    **common.nullable({**common.TEXT, "maxLength": 64}),
                    "description": "The policy for requests that name none; null restores the default "
                    "of the configuration.",
                }
            }
        )
    }
)
