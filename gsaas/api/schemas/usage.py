# SPDX-License-Identifier: Apache-2.0
"""Schemas of usage."""

from __future__ import annotations

from gsaas.api.schemas import common


def _time(description: str) -> dict[str, str]:
    """Return the schema of a time or a date, whose *description* says what it is for."""
    return {
        "type": "string",
        "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?Z)?$",
        "description": f"{description}: a date such as 2026-11-01, or a time in UTC such as "
        "2026-11-01T12:00:00Z.",
    }


SHOW = common.query(
    {
        "start": _time("the start of the period (default: the start of this month)"),
        "end": _time("the end of the period (default: now)"),
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
