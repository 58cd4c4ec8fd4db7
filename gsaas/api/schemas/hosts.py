# SPDX-License-Identifier: Apache-2.0
"""Schemas of hosts."""

from __future__ import annotations

from gsaas.api import microversions
from gsaas.api.schemas import common, gpus

SORT_KEYS = ("name", "gpu_address", "disabled", "monitor_seen_at")
LIST = common.query({**common.PAGE, **common.sorting(SORT_KEYS)})
UPDATE = common.disabling(
    "host",
    drain=common.since(
        microversions.MOVES,
        common.nullable(
            common.record(
                {
                    "by": common.nullable(
                        common.asked_time(
                            "from when on connections that are open are cut; null: they are not"
                        )
                    ),
                    "force": {
                        "type": "boolean",
                        "description": "They are cut at once; not with `by`.",
                    },
                },
                optional=("by", "force"),
            )
        )
        | {
            "description": "Leases that have its GPUs move to other hosts: those without open connections, and "
            "those whose owners consent, at once. Only with `disabled`; null or absent: they stay, and a drain "
            "that has begun is over."
        },
    ),
)
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
        "drain": common.since(
            microversions.MOVES,
            common.nullable(
                common.record(
                    {
                        "since": common.TIME,
                        "by": {
                            **common.nullable(common.TIME),
                            "description": "From when on open connections are cut; null: they are not.",
                        },
                        "leases": {
                            "type": "array",
                            "items": common.record(
                                {
                                    "id": {"type": "string"},
                                    "waits": {
                                        "type": ["string", "null"],
                                        "description": "Why it is still there; null: no engine has looked yet.",
                                    },
                                }
                            ),
                            "description": "The leases that still have GPUs of the host.",
                        },
                    },
                    title="Drain",
                )
            )
            | {"description": "How far it is that leases leave the host; null if they are not to."},
        ),
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
