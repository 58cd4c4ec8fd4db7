"""What the queue looks like on the wire."""

from __future__ import annotations

from gsaas.api.schemas import cgpus, common

LIST = common.query(common.PAGE)

PRIORITY = {"type": "integer", "minimum": -common.MAX_INTEGER, "maximum": common.MAX_INTEGER}

ESTIMATE = {
    "type": ["number", "null"],
    "description": "Seconds until its turn, if leases go on ending as they did; null if none has yet.",
}

STANDING = common.record(
    {
        "position": {"type": "integer", "description": "1 is next."},
        "length": {"type": "integer", "description": "Of the whole queue."},
        "estimate_seconds": ESTIMATE,
    },
    title="Standing",
)

PLACE = common.record(
    {
        "position": {"type": "integer", "description": "1 is next."},
        "lease_id": {"type": "string"},
        "name": {"type": "string"},
        "project_id": {"type": "string"},
        "user_id": {"type": "string"},
        "priority": PRIORITY,
        "queued_at": common.TIME,
        "wait_until": common.nullable(common.TIME),
        "attended": {
            "type": "boolean",
            "description": "Its client keeps asking; if it stops, the place is given back.",
        },
        "estimate_seconds": ESTIMATE,
        "cgpus": cgpus.CGPUS,
    },
    title="Place",
)

MANY = common.record(
    {
        "totals": common.record(
            {
                "length": {"type": "integer", "description": "How many requests wait."},
                "own": {"type": "integer", "description": "How many of the caller's project."},
            },
            title="QueueTotals",
        ),
        "places": {"type": "array", "items": PLACE},
        "places_links": common.LINKS,
    },
    optional=("places_links",),
)
