# SPDX-License-Identifier: Apache-2.0
"""Schemas of the queue."""

from __future__ import annotations

from gsaas.api.schemas import cgpus, common

SORT_KEYS = ("lease_id", "name", "project_id", "user_id", "priority", "queued_at", "wait_until")
LIST = common.query({**common.PAGE, **common.sorting(SORT_KEYS)})

PRIORITY = {"type": "integer", "minimum": -common.MAX_INTEGER, "maximum": common.MAX_INTEGER}

ESTIMATE = {
    "type": ["number", "null"],
    "description": "Estimated seconds until it gets GPUs: from how long recent leases lasted, or until leases end that "
    "have an end, whichever is sooner; null if neither is known.",
}

STANDING = common.record(
    {
        "position": {"type": "integer", "description": "1 is the next in turn."},
        "length": {"type": "integer", "description": "The number of requests in the whole queue."},
        "estimate_seconds": ESTIMATE,
    },
    title="Standing",
)

PLACE = common.record(
    {
        "position": {"type": "integer", "description": "1 is the next in turn."},
        "lease_id": {"type": "string"},
        "name": {"type": "string"},
        "project_id": {"type": "string"},
        "user_id": {"type": "string"},
        "priority": PRIORITY,
        "queued_at": common.TIME,
        "wait_until": common.nullable(common.TIME),
        "attended": {
            "type": "boolean",
            "description": "Whether the request leaves the queue when its client stops asking.",
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
                "length": {"type": "integer", "description": "The number of waiting requests."},
                "own": {
                    "type": "integer",
                    "description": "The number of waiting requests of the caller's project.",
                },
            },
            title="QueueTotals",
        ),
        "places": {"type": "array", "items": PLACE},
        "places_links": common.LINKS,
    },
    optional=("places_links",),
)
