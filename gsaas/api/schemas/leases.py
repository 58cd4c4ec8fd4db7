"""What leases look like on the wire."""

from __future__ import annotations

from gsaas import timings
from gsaas.api.schemas import cgpus, common
from gsaas.lifecycle import Status

CREATE = common.record(
    {
        "lease": common.record(
            {
                "name": {**common.TEXT, "description": "lease-<start of its id> when left out."},
                "cgpus": cgpus.REQUEST,
                "server": {
                    "type": "object",
                    "description": "Nova's own fields of a server: imageRef, flavorRef, networks, "
                    "key_name, user_data and so on.",
                    "properties": {
                        "user_data": {
                            "type": "string",
                            "contentEncoding": "base64",
                            "description": "base64, as Nova takes it",
                        }
                    },
                    "default": {},
                },
            },
            optional=("name", "server"),
        )
    }
)

LIST = common.query(
    {
        **common.PAGE,
        "server_id": {**common.TEXT, "description": "Only the lease of this server."},
        "status": {
            "enum": [str(status) for status in Status],
            "description": "Only leases in this status. Without it, all but RELEASED ones.",
        },
        "name": {**common.TEXT, "description": "Only leases of exactly this name."},
        "all_projects": {
            "type": "boolean",
            "description": "Leases of every project; for admins.",
        },
    }
)

ENVIRONMENT_QUERY = common.query(
    {
        "format": {
            "enum": ["json", "shell", "dotenv"],
            "default": "json",
            "description": "JSON, lines that a shell can evaluate, or lines of a .env file.",
        }
    }
)

DEVICE = common.record(
    {
        "index": {"type": "integer", "description": "The device number that the VM sees."},
        "masked_address": {"type": "string", "description": "ip:port, as the VM is told."},
        "memory_mb": {"type": "integer"},
        "gpu_uuid": {"type": "string"},
        "gpu_host": {"type": "string"},
        "real_address": {
            "type": ["string", "null"],
            "description": "ip:port of the daemon; null while its host has not told its address.",
        },
    },
    optional=("gpu_uuid", "gpu_host", "real_address"),
    title="Device",
    description="One cGPU. Which GPU it is of is told to admins only.",
)

EVENT = common.record(
    {
        "at": common.TIME,
        "event": {"type": "string"},
        "status": {"type": "string", "description": "The lease's status after the event."},
        "detail": {
            "type": ["string", "null"],
            "description": "May name hosts and addresses, so it is null for all but admins.",
        },
    },
    title="LeaseEvent",
)

LEASE_PROPERTIES = {
    "id": {"type": "string"},
    "name": {"type": "string"},
    "status": {"enum": [str(status) for status in Status]},
    "project_id": {"type": "string"},
    "user_id": {"type": "string"},
    "created_at": common.TIME,
    "updated_at": common.TIME,
    "released_at": common.nullable(common.TIME),
    "cgpus": cgpus.CGPUS,
    "remoting": {"type": "string"},
    "server": common.record(
        {"id": {"type": ["string", "null"]}, "host": {"type": ["string", "null"]}},
        optional=("host",),
    ),
    "devices": {"type": "array", "items": DEVICE},
    "fault": common.nullable(
        common.record({"step": {"type": ["string", "null"]}, "message": {"type": "string"}})
    ),
    "dropped_packets": {
        "type": ["object", "null"],
        "description": "Packets of the VM that its host dropped, by reason; null before the first "
        "report.",
        "additionalProperties": {"type": "integer"},
    },
    "timings": {
        "type": "object",
        "description": "Seconds that each phase of its launch took, for those that are over.",
        "properties": {phase: {"type": "number"} for phase in timings.PHASES},
        "additionalProperties": False,
    },
    "links": common.LINKS,
}
LEASE = common.record(LEASE_PROPERTIES, title="Lease")
LEASE_WITH_STORY = common.record(
    {**LEASE_PROPERTIES, "events": {"type": "array", "items": EVENT}}, title="LeaseWithStory"
)

CREATED = common.record(
    {
        "lease": LEASE,
        "notes": {
            "type": "array",
            "items": {"type": "string"},
            "description": "What the cloud makes of the server fields, such as one it ignores.",
        },
    }
)
ONE = common.record({"lease": LEASE})
SHOWN = common.record({"lease": LEASE_WITH_STORY})
MANY = common.record(
    {"leases": {"type": "array", "items": LEASE}, "leases_links": common.LINKS},
    optional=("leases_links",),
)
ENVIRONMENT = common.record(
    {"environment": {"type": "object", "additionalProperties": {"type": "string"}}}
)
