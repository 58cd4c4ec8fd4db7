# SPDX-License-Identifier: Apache-2.0
"""Schemas of GPUs."""

from __future__ import annotations

from gsaas.api import microversions
from gsaas.api.schemas import common
from gsaas.objects import device_kinds

SORT_KEYS = (
    "uuid",
    "host",
    "index",
    "model",
    "memory_mb",
    "used_mb",
    "disabled",
    "withdrawn",
    "parent_uuid",
)
LIST = common.query({**common.PAGE, **common.sorting(SORT_KEYS)})
UPDATE = common.disabling("gpu")
ADOPT = common.record(
    {
        "adopt": common.record(
            {
                "host": {
                    **common.TEXT,
                    "description": "The host to which the GPU moves: one that reports it.",
                }
            }
        )
    }
)

TOTALS = common.record(
    {
        "hosts": {"type": "integer", "description": "Hosts that have GPUs."},
        "gpus": {"type": "integer"},
        "memory_mb": {"type": "integer"},
        "free_mb": {
            "type": "integer",
            "description": "Free memory of the GPUs that are available to new leases.",
        },
        "idle": {
            "type": "integer",
            "description": "GPUs that are available to new leases and that no lease uses.",
        },
    },
    title="Totals",
)

PROCESS = common.record(
    {
        "pid": {"type": "integer"},
        "name": {"type": ["string", "null"]},
        "used_mb": {"type": ["integer", "null"]},
    },
    title="GpuProcess",
)

XID_ERROR = common.record(
    {
        "at": {**common.TIME, "description": "By the clock of the GPU's host."},
        "xid": {"type": "integer", "description": "NVIDIA's XID, the number of the error."},
        "fatal": {"type": "boolean", "description": "Whether the GPU was withdrawn because of it."},
    },
    title="XidError",
)

READING = common.record(
    {
        "at": common.TIME,
        "used_mb": {
            "type": ["integer", "null"],
            "description": "GPU memory in use by any process, whether of a lease or not.",
        },
        "utilisation": {"type": ["number", "null"], "description": "Percent."},
        "mean_utilisation": {
            "type": ["number", "null"],
            "description": "Percent, over the monitor's utilisation_window.",
        },
        "temperature_c": {"type": ["number", "null"]},
        "power_w": {"type": ["number", "null"]},
        "processes": {"type": "array", "items": PROCESS},
        "xid_errors": {"type": "array", "items": XID_ERROR, "description": "The most recent ones."},
    },
    title="GpuReading",
    description="The monitor's last reading. Values that the GPU does not report are null.",
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
        "withdrawn": {
            "type": ["string", "null"],
            "description": "Why its monitor considers it unusable; null while it is usable.",
        },
        "awaits_operator": {
            "type": "boolean",
            "description": "Whether it stays withdrawn until an operator enables it.",
        },
        "parent_uuid": {
            "type": ["string", "null"],
            "description": "The UUID of the GPU that this MIG instance is part of; null for a whole GPU.",
        },
        "compute_capability": {"type": ["string", "null"]},
        "reading": common.nullable(READING),
        "daemon_address": {
            "type": ["string", "null"],
            "description": "ip:port of its daemon on the GPU network.",
        },
        "generation": {"type": "integer"},
        "kind": common.since(
            microversions.KINDS,
            {
                "enum": list(device_kinds.KINDS),
                "description": "cuda: a GPU of NVIDIA; cpu: cores and memory of its host.",
            },
        ),
        "reported_by": common.since(
            microversions.ADOPTION,
            {
                "type": "array",
                "items": {"type": "string"},
                "description": "Other hosts that report this GPU, and are not believed.",
            },
        ),
        "reserved_mb": common.since(
            microversions.RESERVATIONS,
            {
                "type": "integer",
                "description": "MiB kept for reservations that no lease of theirs uses yet.",
            },
        ),
    },
    title="Gpu",
)

ONE = common.record({"gpu": GPU})
MANY = common.record(
    {"totals": TOTALS, "gpus": {"type": "array", "items": GPU}, "gpus_links": common.LINKS},
    optional=("gpus", "gpus_links"),
)
