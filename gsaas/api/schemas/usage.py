"""What usage looks like on the wire."""

from __future__ import annotations

from gsaas.api.schemas import common


def _moment(what: str) -> dict[str, str]:
    return {
        "type": "string",
        "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?Z)?$",
        "description": f"{what}: a date such as 2026-11-01, or a time in UTC such as "
        "2026-11-01T12:00:00Z.",
    }


SHOW = common.query(
    {
        "start": _moment("when the period begins (default: with this month)"),
        "end": _moment("when it ends (default: now)"),
    }
)

USED = common.record(
    {
        "project_id": {"type": "string"},
        "leases": {"type": "integer", "description": "Those that held GPUs in the period."},
        "gpu_hours": {"type": "number", "description": "A part of a GPU counts as that part."},
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
