"""What hosts look like on the wire."""

from __future__ import annotations

from gsaas.api.schemas import common, gpus

LIST = common.query(common.PAGE)
UPDATE = common.disabling("host")
DELETE = common.query(
    {
        "force": {
            "type": "boolean",
            "description": "Also if it was heard of a moment ago: it was switched off since.",
        }
    }
)

FORGOTTEN = common.record(
    {
        "forgotten": common.record(
            {
                "name": {"type": "string"},
                "failed_leases": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Those that held its GPUs: in ERROR now.",
                },
                "unbound_leases": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Those whose VMs it ran: nothing there has to confirm anything any more.",
                },
            }
        )
    }
)

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
        "monitor_interval": {
            "type": ["number", "null"],
            "description": "Seconds between two reports of its monitor.",
        },
        "problems": {
            "type": "array",
            "items": {"type": "string"},
            "description": "What its monitor says somebody has to mend.",
        },
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
