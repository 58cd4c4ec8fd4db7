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
        "free_mb": {"type": "integer", "description": "Of GPUs that are on offer."},
        "idle": {"type": "integer", "description": "GPUs on offer with nothing on them."},
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
        "at": {**common.TIME, "description": "By the clock of its host."},
        "xid": {"type": "integer", "description": "NVIDIA's number of the error."},
        "fatal": {"type": "boolean", "description": "Whether it withdrew the GPU."},
    },
    title="XidError",
)

READING = common.record(
    {
        "at": common.TIME,
        "used_mb": {"type": ["integer", "null"], "description": "In use, by whomever."},
        "utilisation": {"type": ["number", "null"], "description": "Percent."},
        "mean_utilisation": {
            "type": ["number", "null"],
            "description": "Percent, over the monitor's utilisation_window.",
        },
        "temperature_c": {"type": ["number", "null"]},
        "power_w": {"type": ["number", "null"]},
        "processes": {"type": "array", "items": PROCESS},
        "xid_errors": {"type": "array", "items": XID_ERROR, "description": "The last few."},
    },
    title="GpuReading",
    description="What its monitor read last. What the GPU does not tell is null.",
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
            "description": "Why its monitor says that it cannot be used; null while it can.",
        },
        "awaits_operator": {
            "type": "boolean",
            "description": "It stays withdrawn until somebody enables it.",
        },
        "parent_uuid": {
            "type": ["string", "null"],
            "description": "The GPU that a MIG instance is part of.",
        },
        "compute_capability": {"type": ["string", "null"]},
        "reading": common.nullable(READING),
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
