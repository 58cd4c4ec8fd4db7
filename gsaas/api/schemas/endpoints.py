# SPDX-License-Identifier: Apache-2.0
"""Schemas of RODVR endpoints."""

from __future__ import annotations

from gsaas.api.schemas import common

SORT_KEYS = ("host", "seen_at")
LIST = common.query({**common.PAGE, **common.sorting(SORT_KEYS)})

ENDPOINT = common.record(
    {
        "host": {"type": "string"},
        "seen_at": common.TIME,
        "bindings": common.record(
            {
                "installed": {"type": "integer"},
                "pending": {
                    "type": "integer",
                    "description": "Bindings whose VM's interface does not exist yet.",
                },
            }
        ),
        "problems": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Problems that an operator has to solve.",
        },
        "dropped_packets": {
            "type": "object",
            "description": "Port id -> reason -> number of packets.",
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
