"""What scheduling policies look like on the wire."""

from __future__ import annotations

from gsaas.api.schemas import common

MANY = common.record(
    {
        "policies": {
            "type": "array",
            "items": common.record(
                {
                    "name": {"type": "string"},
                    "default": {
                        "type": "boolean",
                        "description": "Used for requests that name none.",
                    },
                    "description": {"type": "string"},
                },
                title="Policy",
            ),
        }
    }
)
