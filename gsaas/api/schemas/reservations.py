# SPDX-License-Identifier: Apache-2.0
"""Schemas of reservations."""

from __future__ import annotations

from gsaas.api.schemas import cgpus, common
from gsaas.objects.reservation import ReservationStatus

_WANTED = {
    name: schema
    for name, schema in cgpus.REQUEST["properties"].items()
    if name not in ("locality", "policy")
}

CREATE = common.record(
    {
        "reservation": common.record(
            {
                "name": {
                    **common.TEXT,
                    "description": "By default `reservation-` and the first 8 characters of its id.",
                },
                "cgpus": {
                    **cgpus.REQUEST,
                    **common.record(
                        _WANTED,
                        optional=tuple(name for name in _WANTED if name != "count"),
                        title="ReservedCgpus",
                    ),
                },
                "start": common.asked_time("its beginning, not in the past (default: now)"),
                "end": common.asked_time("its end"),
            },
            optional=("name", "start"),
        )
    }
)

UPDATE = common.record(
    {
        "reservation": common.record(
            {"name": {**common.TEXT, "description": "Its new name."}},
            optional=("name",),
            title="ReservationChange",
        )
    }
)

SORT_KEYS = ("id", "name", "status", "project_id", "user_id", "created_at", "start", "end")
LIST = common.query(
    {
        **common.PAGE,
        **common.sorting(SORT_KEYS),
        "all_projects": {
            "type": "boolean",
            "description": "List the reservations of all projects; for admins.",
        },
        "status": {
            "enum": [str(status) for status in ReservationStatus],
            "description": "Only reservations in this status; by default those that are PENDING or ACTIVE.",
        },
    }
)

RESERVATION = common.record(
    {
        "id": {"type": "string"},
        "name": {"type": "string"},
        "status": {"enum": [str(status) for status in ReservationStatus]},
        "project_id": {"type": "string"},
        "user_id": {"type": "string"},
        "created_at": common.TIME,
        "start": common.TIME,
        "end": common.TIME,
        "cgpus": cgpus.NEAREST | {"title": "Reserved", "description": "What it asks for."},
        "kept": {
            "type": "integer",
            "description": "How many of its cGPUs it has: other leases still use the rest, or may use it until shortly "
            "before its beginning.",
        },
        "lease_ids": {
            "type": "array",
            "items": {"type": "string"},
            "description": "The leases that were launched in it and have cGPUs of it.",
        },
        "degraded": {
            "type": "boolean",
            "description": "Whether some of its cGPUs are on a GPU that is out of service; they move once another GPU "
            "has room.",
        },
        "degraded_reasons": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Why it is degraded; only for admins, because the reasons name GPUs and hosts.",
        },
        "links": common.LINKS,
    },
    optional=("degraded_reasons",),
    title="Reservation",
)
ONE = common.record({"reservation": RESERVATION})
MANY = common.record(
    {
        "reservations": {"type": "array", "items": RESERVATION},
        "reservations_links": common.LINKS,
    },
    optional=("reservations_links",),
)
