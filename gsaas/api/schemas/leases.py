"""What leases look like on the wire."""

from __future__ import annotations

from gsaas.api.schemas import cgpus, common, queue
from gsaas.objects import timings
from gsaas.objects.access import Access
from gsaas.objects.lifecycle import Status

CREATE = common.record(
    {
        "lease": common.record(
            {
                "name": {**common.TEXT, "description": "lease-<start of its id> when left out."},
                "cgpus": cgpus.REQUEST,
                "server": {
                    "type": ["object", "null"],
                    "description": "Nova's own fields of a server: imageRef, flavorRef, networks, "
                    "key_name, user_data and so on. null: no VM; somebody else runs what uses the cGPUs.",
                    "properties": {
                        "user_data": {
                            "type": "string",
                            "contentEncoding": "base64",
                            "description": "base64, as Nova takes it",
                        }
                    },
                    "default": {},
                },
                "consumer": common.record(
                    {
                        "host": {
                            **common.TEXT,
                            "description": "The host on which it runs, by the name that GSaaS knows it by.",
                        },
                        "uid": {
                            "type": "integer",
                            "minimum": 0,
                            "maximum": 2**32 - 2,
                            "description": "The only user of that host who may use masked addresses.",
                        },
                        "address": {
                            "type": "string",
                            "format": "ipv4",
                            "pattern": "^[0-9.]+$",
                            "description": "The only address from which the grant may be redeemed.",
                        },
                    },
                    optional=("host", "uid", "address"),
                    description="Who uses a lease without a server; only with server null.",
                ),
                "wait": {
                    "type": ["integer", "null"],
                    "minimum": 1,
                    "maximum": common.MAX_INTEGER,
                    "description": "Seconds to wait in the queue for cGPUs that are not free now; null: "
                    "for as long as it takes. Left out, the answer is a refusal.",
                },
                "priority": {
                    **queue.PRIORITY,
                    "default": 0,
                    "description": "Higher goes first in the queue; above 0 for admins.",
                },
                "attended": {
                    "type": "boolean",
                    "default": False,
                    "description": "The client will keep asking while it waits (while_status below); "
                    "when it stops, its place is given back.",
                },
                "keepalive": {
                    "type": "integer",
                    "minimum": 10,
                    "maximum": 86400,
                    "description": "Seconds: once it has its cGPUs, the lease ends unless its client says again "
                    "within so many seconds that it is still there; only with server null.",
                },
            },
            optional=("name", "server", "consumer", "wait", "priority", "attended", "keepalive"),
        )
    }
)

_TIMEOUT = {
    "type": "integer",
    "minimum": 0,
    "maximum": 60,
    "default": 0,
    "description": "Seconds after which the answer comes in any case.",
}

CREATE_QUERY = common.query(
    {
        "timeout": {
            **_TIMEOUT,
            "description": "Seconds for which the answer may be held back while the request is in the queue.",
        }
    }
)

SHOW_QUERY = common.query(
    {
        "while_status": {
            "enum": [str(status) for status in Status],
            "description": "Answer as soon as the lease has another status than this.",
        },
        "timeout": _TIMEOUT,
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
        "masked_address": {
            "type": ["string", "null"],
            "description": "ip:port, as the VM or other consumer is told; null if it is told the real one.",
        },
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
    description="One cGPU. Which GPU it is of is told to admins, and to a consumer who needs it.",
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
    "kept_until": common.nullable(common.TIME),
    "queued_at": common.nullable(common.TIME),
    "wait_until": common.nullable(common.TIME),
    "priority": queue.PRIORITY,
    "queue": common.nullable(queue.STANDING),
    "cgpus": cgpus.CGPUS,
    "remoting": {"type": "string"},
    "access": {
        "enum": [*map(str, Access), None],
        "description": "How its consumer reaches the GPUs; null until it has some.",
    },
    "server": common.nullable(
        common.record(
            {"id": {"type": ["string", "null"]}, "host": {"type": ["string", "null"]}},
            optional=("host",),
        )
    ),
    "consumer": common.nullable(
        common.record(
            {
                "host": {"type": ["string", "null"]},
                "uid": {"type": ["integer", "null"]},
                "address": {"type": ["string", "null"]},
            },
            description="Who uses it, if it has no server.",
        )
    ),
    "degraded": {
        "type": "boolean",
        "description": "Whether a GPU that it holds has failed, or nobody knows how it is. It may come back.",
    },
    "degraded_reasons": {
        "type": "array",
        "items": {"type": "string"},
        "description": "Why; they name GPUs and hosts, so they are told to admins only.",
    },
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
FOR_ADMINS = ("degraded_reasons",)
LEASE = common.record(LEASE_PROPERTIES, optional=FOR_ADMINS, title="Lease")
LEASE_WITH_STORY = common.record(
    {**LEASE_PROPERTIES, "events": {"type": "array", "items": EVENT}},
    optional=FOR_ADMINS,
    title="LeaseWithStory",
)

CREATED = common.record(
    {
        "lease": LEASE,
        "notes": {
            "type": "array",
            "items": {"type": "string"},
            "description": "What the cloud makes of the server fields, such as one it ignores.",
        },
        "environment": {
            "type": "object",
            "description": "With 201: the variables with which programs find the cGPUs.",
            "additionalProperties": {"type": "string"},
        },
    },
    optional=("environment",),
)
ONE = common.record({"lease": LEASE})
KEPT = common.record(
    {
        "lease": common.record(
            {
                "id": {"type": "string"},
                "status": {"enum": [str(status) for status in Status]},
                "kept_until": common.nullable(common.TIME),
            },
            title="KeptLease",
        )
    }
)
SHOWN = common.record({"lease": LEASE_WITH_STORY})
MANY = common.record(
    {"leases": {"type": "array", "items": LEASE}, "leases_links": common.LINKS},
    optional=("leases_links",),
)
ENVIRONMENT = common.record(
    {"environment": {"type": "object", "additionalProperties": {"type": "string"}}}
)
