"""What RODVR endpoints look like on the wire."""

from __future__ import annotations

from gsaas.api.schemas import common

LIST = common.query(common.PAGE)

ENDPOINT = common.record(
    {
        "host": {"type": "string"},
        "seen_at": common.TIME,
        "bindings": common.record(
            {
                "installed": {"type": "integer"},
                "pending": {"type": "integer", "description": "Waiting for the VM's interface."},
            }
        ),
        "problems": {"type": "array", "items": {"type": "string"}},
        "dropped_packets": {
            "type": "object",
            "description": "By port id, by reason.",
            "additionalProperties": {
                "type": "object",
                "additionalProperties": {"type": "integer"},
            },
        },
    },
    title="Endpoint",
)

ONE = common.record({"endpoint": ENDPOINT})
MANY = common.record(
    {"endpoints": {"type": "array", "items": ENDPOINT}, "endpoints_links": common.LINKS},
    optional=("endpoints_links",),
)
