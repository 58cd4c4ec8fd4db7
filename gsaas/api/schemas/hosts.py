# SPDX-License-Identifier: Apache-2.0
"""Schemas of hosts."""

from __future__ import annotations

from gsaas.api.schemas import common, gpus

SORT_KEYS = ("name", "gpu_address", "disabled", "monitor_seen_at")
LIST = common.query({**common.PAGE, **common.sorting(SORT_KEYS)})
UPDATE = common.disabling("host")
DELETE = common.query(
    {
        "force": {
            "type": "boolean",
            "description": "Delete the host even if its agents reported recently, because it was switched off since.",
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
                    "description": "Leases that had GPUs of the host; they are in ERROR now.",
                },
                "unbound_leases": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Leases whose VMs ran on the host; they no longer wait for its endpoint to confirm.",
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
            "description": "Seconds between two reports of the host's monitor.",
        },
        "problems": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Problems that an operator has to solve, as its monitor reports them of GPUs, daemons "
            "and fence; one of them says what of its report was not valid.",
        },
        "silent": {
            "type": "boolean",
            "description": "Whether the host's monitor has stopped reporting, so that new leases do not get its GPUs.",
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
