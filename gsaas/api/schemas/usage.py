# SPDX-License-Identifier: Apache-2.0
"""Schemas of usage."""

from __future__ import annotations

from gsaas.api import microversions
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
        "cost": common.since(
            microversions.COSTS,
            {
                "type": "string",
                "description": "What these GPU-hours cost, a decimal number; missing if the operator has no prices.",
            },
        ),
        "unpriced_gpu_hours": common.since(
            microversions.COSTS,
            {
                "type": "number",
                "description": "GPU-hours of models without a price; missing if the operator has no prices.",
            },
        ),
    },
    title="Used",
)

SHOWN = common.record(
    {
        "usage": common.record(
            {
                "start": common.TIME,
                "end": common.TIME,
                "currency": common.since(
                    microversions.COSTS,
                    {
                        "type": "string",
                        "description": "That of the costs, as the operator calls it; missing without prices.",
                    },
                ),
                "projects": {"type": "array", "items": USED},
            },
            title="Usage",
        )
    }
)
