"""What scheduling policies look like on the wire."""

from __future__ import annotations

from gsaas.api.schemas import common

PROPERTIES = {
    "name": {"type": "string"},
    "default": {"type": "boolean", "description": "Used for requests that name none."},
    "configured": {
        "type": "boolean",
        "description": "The default of the configuration, before any admin's.",
    },
    "allowed": {"type": "boolean", "description": "Requests may name it."},
    "source": {"type": "string", "description": "Where the rule comes from."},
    "description": {"type": "string", "description": "The rule, in one line."},
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
                    "description": "What it is good for, and what that costs.",
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
                    "description": "Serves requests that name none; null: as configured.",
                }
            }
        )
    }
)
