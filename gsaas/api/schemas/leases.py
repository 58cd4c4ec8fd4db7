# SPDX-License-Identifier: Apache-2.0
"""Schemas of leases."""

from __future__ import annotations

from gsaas.api import microversions
from gsaas.api.schemas import cgpus, common, queue, readings, servers
from gsaas.objects import timings
from gsaas.objects.access import Access
from gsaas.objects.lifecycle import Status
from gsaas.objects.move import Kind

_DURATION = {
    "type": "integer",
    "minimum": 1,
    "maximum": common.MAX_INTEGER,
    "description": "Seconds from when it has its cGPUs until it ends.",
}
_ENDS_AT = common.asked_time("when it ends, even if it still waits then; not with `duration`")
_END = {
    "duration": common.since(microversions.ENDS, _DURATION),
    "ends_at": common.since(microversions.ENDS, _ENDS_AT),
}
_MOVABLE = common.since(
    microversions.MOVES,
    {
        "enum": [*map(str, Kind)],
        "description": "idle: operators move its cGPUs while no connection is open, unless they force a move; "
        "cut: they may also cut the connections that are open, after which its programs have to start again.",
    },
)

CREATE = common.record(
    {
        "lease": common.record(
            {
                "name": {
                    **common.TEXT,
                    "description": "The name of the lease; by default `lease-` and the first 8 characters of its id.",
                },
                "cgpus": cgpus.REQUEST,
                "server": servers.SERVER,
                "consumer": common.record(
                    {
                        "host": {
                            **common.TEXT,
                            "description": "The host on which the consumer runs, by its name in GSaaS.",
                        },
                        "uid": {
                            "type": "integer",
                            "minimum": 0,
                            "maximum": 2**32 - 2,
                            "description": "The uid of the only user of that host who may use the masked addresses.",
                        },
                        "address": {
                            "type": "string",
                            "format": "ipv4",
                            "pattern": "^[0-9.]+$",
                            "description": "The only IPv4 address from which the grant may be redeemed.",
                        },
                    },
                    optional=("host", "uid", "address"),
                    description="The program or VM that uses the cGPUs of a lease without a server; "
                    "only with server null.",
                ),
                "wait": {
                    "type": ["integer", "null"],
                    "minimum": 1,
                    "maximum": common.MAX_INTEGER,
                    "description": "Seconds to wait in the queue if the cGPUs are not free now; null: without "
                    "a limit. If absent, such a request is refused.",
                },
                "priority": {
                    **queue.PRIORITY,
                    "default": 0,
                    "description": "Requests of a higher priority come first in the queue; only admins "
                    "may use one above 0.",
                },
                "attended": {
                    "type": "boolean",
                    "default": False,
                    "description": "Whether the client keeps sending GET /v1/leases/{id} with while_status while the "
                    "request waits; when it stops, the request leaves the queue.",
                },
                "keepalive": {
                    "type": "integer",
                    "minimum": 10,
                    "maximum": 86400,
                    "description": "Seconds: once the lease has its cGPUs, it ends when its client has "
                    "sent no keepalive "
                    "request for this long; only with server null.",
                },
                "reservation": common.since(
                    microversions.RESERVATIONS,
                    {
                        **common.TEXT,
                        "description": "The reservation of the caller's project that it is launched in: its cGPUs "
                        "have the reservation's mode and size.",
                    },
                ),
                **_END,
                "movable": _MOVABLE,
            },
            optional=("name", "server", "consumer", "wait", "priority", "attended", "keepalive"),
        )
    }
)

UPDATE = common.record(
    {
        "lease": common.record(
            {
                "name": {**common.TEXT, "description": "Its new name; that of its VM stays."},
                "priority": {
                    **queue.PRIORITY,
                    "description": "Its new priority, while it is in the queue; only admins may use one above 0.",
                },
                "duration": _END["duration"],
                "ends_at": common.since(
                    microversions.ENDS,
                    {
                        **common.nullable(_ENDS_AT),
                        "description": "When it ends from now on, sooner or later than before; null: it has no end.",
                    },
                ),
                "movable": _MOVABLE,
            },
            optional=("name", "priority"),
            title="LeaseChange",
        )
    }
)

_TIMEOUT = {
    "type": "integer",
    "minimum": 0,
    "maximum": 60,
    "default": 0,
    "description": "The longest time to wait for the change, in seconds.",
}

CREATE_QUERY = common.query(
    {
        "timeout": {
            **_TIMEOUT,
            "description": "The longest time to delay the response while the request is in the queue, in seconds.",
        }
    }
)

SHOW_QUERY = common.query(
    {
        "while_status": {
            "enum": [str(status) for status in Status],
            "description": "Delay the response until the lease has another status than this.",
        },
        "timeout": _TIMEOUT,
    }
)

PLACEMENT_SORT_KEYS = ("server_host",)
"""Fields that only callers who may see placements may sort by: the order would tell the others."""
SORT_KEYS = (
    *("id", "name", "status", "project_id", "user_id", "created_at", "updated_at"),
    *("released_at", "queued_at", "wait_until", "kept_until", "priority", "count"),
    *("mode", "memory_mb", "locality", "policy", "access", "server_id"),
    *PLACEMENT_SORT_KEYS,
)

LIST = common.query(
    {
        **common.PAGE,
        **common.sorting(SORT_KEYS),
        "changes-since": common.since(
            microversions.SORTING,
            common.asked_time(
                "only leases that have changed since then, RELEASED ones included", in_query=True
            ),
        ),
        "server_id": {**common.TEXT, "description": "Only the lease with this server."},
        "status": {
            "enum": [str(status) for status in Status],
            "description": "Only leases in this status; by default all but RELEASED ones.",
        },
        "name": {**common.TEXT, "description": "Only leases with exactly this name."},
        "all_projects": {
            "type": "boolean",
            "description": "List the leases of all projects; for admins.",
        },
    }
)

ENVIRONMENT_QUERY = common.query(
    {
        "format": {
            "enum": ["json", "shell", "dotenv"],
            "default": "json",
            "description": "json: a JSON object; shell: commands for a shell; dotenv: a .env file.",
        }
    }
)

DEVICE = common.record(
    {
        "index": {"type": "integer", "description": "The device number that programs see."},
        "masked_address": {
            "type": ["string", "null"],
            "description": "The ip:port that the VM or other consumer uses; null if it uses the real address.",
        },
        "memory_mb": {"type": "integer"},
        "gpu_uuid": {"type": "string"},
        "gpu_host": {"type": "string"},
        "real_address": {
            "type": ["string", "null"],
            "description": "ip:port of the daemon; null until its host has reported its address.",
        },
    },
    optional=("gpu_uuid", "gpu_host", "real_address"),
    title="Device",
    description="One cGPU. Only admins, and consumers that need it, see on which GPU it is.",
)

EVENT = common.record(
    {
        "at": common.TIME,
        "event": {"type": "string"},
        "status": {"type": "string", "description": "The lease's status after the event."},
        "detail": {
            "type": ["string", "null"],
            "description": "It may name hosts and addresses, so it is null for callers other than admins.",
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
        "description": "How its consumer reaches the GPUs; null until the lease has GPUs.",
    },
    "server": common.nullable(
        common.record(
            {
                "id": {"type": ["string", "null"]},
                "host": {"type": ["string", "null"]},
                "addresses": common.since(
                    microversions.ADDRESSES,
                    {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "Its IPv4 addresses in its first network; empty until the cloud has made it.",
                    },
                ),
            },
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
            description="The program or VM that uses the cGPUs of a lease without a server.",
        )
    ),
    "degraded": {
        "type": "boolean",
        "description": "Whether a GPU of the lease, its daemon or its host's monitor has failed. It may recover.",
    },
    "degraded_reasons": {
        "type": "array",
        "items": {"type": "string"},
        "description": "Why it is degraded; only for admins, because the reasons name GPUs and hosts.",
    },
    "devices": {"type": "array", "items": DEVICE},
    "fault": common.nullable(
        common.record({"step": {"type": ["string", "null"]}, "message": {"type": "string"}})
    ),
    "dropped_packets": {
        "type": ["object", "null"],
        "description": "Packets of the VM that its host dropped, by reason; null until the host has reported.",
        "additionalProperties": {"type": "integer"},
    },
    "problems": common.since(
        microversions.PROBLEMS,
        {
            "type": "array",
            "items": {"type": "string"},
            "description": "What its VM or programs did in the last minutes that was refused, and what to do.",
        },
    ),
    "timings": {
        "type": "object",
        "description": "The duration in seconds of each phase of the launch that is complete.",
        "properties": {phase: {"type": "number"} for phase in timings.PHASES},
        "additionalProperties": False,
    },
    "idle_since": common.since(
        microversions.READINGS,
        {
            **common.nullable(common.TIME),
            "description": "Since when nothing has used it; null if it is in use, or that is not known.",
        },
    ),
    "reading": common.since(
        microversions.READINGS,
        {
            **common.nullable(readings.POINT),
            "description": "The newest reading; null if there was none in the last minutes.",
        },
    ),
    "claimed_at": common.since(
        microversions.LEASE_USAGE,
        {
            **common.nullable(common.TIME),
            "description": "When it got its GPUs; null if it has not.",
        },
    ),
    "usage": common.since(
        microversions.LEASE_USAGE,
        {
            **common.nullable(readings.USAGE),
            "description": "What it has used since then; null if it has had no GPUs.",
        },
    ),
    "reclaim_at": common.since(
        microversions.RECLAIM,
        {
            **common.nullable(common.TIME),
            "description": "When it loses its GPUs unless something uses it before; null if its owner was not warned.",
        },
    ),
    "duration": common.since(
        microversions.ENDS,
        {
            "type": ["integer", "null"],
            "description": "The seconds that it was to last from when it has its cGPUs; null if it was not said so.",
        },
    ),
    "ends_at": common.since(
        microversions.ENDS,
        {
            **common.nullable(common.TIME),
            "description": "When it ends, or was to end; null without an end, and with `duration` while it waits.",
        },
    ),
    "movable": _MOVABLE,
    "cut_at": common.since(
        microversions.MOVES,
        {
            **common.nullable(common.TIME),
            "description": "From when on its connections may be cut, because the host of its GPUs is drained; null if "
            "they are not.",
        },
    ),
    "reservation": common.since(
        microversions.RESERVATIONS,
        {
            "type": ["string", "null"],
            "description": "The id of the reservation that it was launched in.",
        },
    ),
    "links": common.LINKS,
}
_FOR_ADMINS = ("degraded_reasons",)
LEASE = common.record(LEASE_PROPERTIES, optional=_FOR_ADMINS, title="Lease")
LEASE_WITH_EVENTS = common.record(
    {**LEASE_PROPERTIES, "events": {"type": "array", "items": EVENT}},
    optional=_FOR_ADMINS,
    title="LeaseWithStory",
)

CREATED = common.record(
    {
        "lease": LEASE,
        "notes": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Remarks on the server fields, such as a field that the cloud ignores.",
        },
        "environment": {
            "type": "object",
            "description": "The environment variables with which programs find the cGPUs; only with status 201.",
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
SHOWN = common.record({"lease": LEASE_WITH_EVENTS})
MANY = common.record(
    {"leases": {"type": "array", "items": LEASE}, "leases_links": common.LINKS},
    optional=("leases_links",),
)
ENVIRONMENT = common.record(
    {"environment": {"type": "object", "additionalProperties": {"type": "string"}}}
)
