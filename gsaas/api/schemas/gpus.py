"""What GPUs look like on the wire."""

from __future__ import annotations

from gsaas.api.schemas import common

LIST = common.query(common.PAGE)
UPDATE = common.disabling("gpu")

TOTALS = common.record(
    {
        "hosts": {"type": "integer", "description": "Hosts that have GPUs."},
        "gpus": {"type": "integer"},
        "memory_mb": {"type": "integer"},
        "free_mb": {"type": "integer", "description": "Of GPUs that are not disabled."},
        "idle": {"type": "integer", "description": "GPUs with nothing on them, not disabled."},
    },
    title="Totals",
)

GPU = common.record(
    {
        "uuid": {"type": "string"},
        "host": {"type": "string"},
        "index": {"type": "integer"},
        "model": {"type": "string"},
        "memory_mb": {"type": "integer"},
        "used_mb": {"type": "integer"},
        "mode": {"enum": ["free", "shared", "exclusive"]},
        "leases": {"type": "array", "items": {"type": "string"}},
        "disabled": {"type": "boolean"},
        "disabled_reason": {"type": ["string", "null"]},
        "daemon_address": {
            "type": ["string", "null"],
            "description": "ip:port on the GPU network.",
        },
        "generation": {"type": "integer"},
    },
    title="Gpu",
)

ONE = common.record({"gpu": GPU})
MANY = common.record(
    {"totals": TOTALS, "gpus": {"type": "array", "items": GPU}, "gpus_links": common.LINKS},
    optional=("gpus", "gpus_links"),
)
