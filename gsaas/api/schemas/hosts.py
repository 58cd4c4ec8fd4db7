"""What hosts look like on the wire."""

from __future__ import annotations

from gsaas.api.schemas import common, gpus

LIST = common.query(common.PAGE)
UPDATE = common.disabling("host")

HOST = common.record(
    {
        "name": {"type": "string"},
        "gpu_address": {"type": ["string", "null"]},
        "gpus": {"type": "integer"},
        "memory_mb": {"type": "integer"},
        "free_mb": {"type": "integer"},
        "compute": {"type": "boolean", "description": "Whether VMs can run on it."},
        "disabled": {"type": "boolean"},
        "disabled_reason": {"type": ["string", "null"]},
        "monitor_seen_at": common.nullable(common.TIME),
        "silent": {
            "type": "boolean",
            "description": "Its monitor was not heard of for too long: its GPUs are not offered.",
        },
    },
    title="Host",
)

ONE = common.record({"host": HOST})
MANY = common.record(
    {
        "totals": gpus.TOTALS,
        "hosts": {"type": "array", "items": HOST},
        "hosts_links": common.LINKS,
    },
    optional=("hosts", "hosts_links"),
)
