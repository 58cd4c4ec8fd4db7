# SPDX-License-Identifier: Apache-2.0
"""Schemas of usage."""

from __future__ import annotations

from gsaas.api.schemas import common

SHOW = common.query(
    {
        "start": common.asked_time(
            "the start of the period (default: the start of this month)", in_query=True
        ),
        "end": common.asked_time("the end of the period (default: now)", in_query=True),
    }
)

USED = common.record(
    {
        "project_id": {"type": "string"},
        "leases": {
            "type": "integer",
            "description": "The number of leases that had GPUs in the period.",
        },
        "gpu_hours": {
            "type": "number",
            "description": "GPUs times hours; a part of a GPU counts as that fraction.",
        },
        "memory_mb_hours": {"type": "number", "description": "MiB of GPU memory times hours."},
    },
    title="Used",
)

SHOWN = common.record(
    {
        "usage": common.record(
            {
                "start": common.TIME,
                "end": common.TIME,
                "projects": {"type": "array", "items": USED},
            },
            title="Usage",
        )
    }
)
