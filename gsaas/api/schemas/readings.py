# SPDX-License-Identifier: Apache-2.0
"""Schemas of readings."""

from __future__ import annotations

from gsaas.api.schemas import common
from gsaas.objects.readings import RESOLUTIONS

_RATE = {"type": ["number", "null"], "minimum": 0}

POINT = common.record(
    {
        "at": {**common.TIME, "description": "The beginning of the interval."},
        "cgpus": {
            "type": "array",
            "description": "The cGPUs that have a reading in this interval.",
            "items": common.record(
                {
                    "index": {
                        "type": "integer",
                        "description": "The device number that programs see.",
                    },
                    "utilisation": {
                        "type": ["number", "null"],
                        "minimum": 0,
                        "maximum": 100,
                        "description": "Percent of the time in which a kernel ran, as a mean over the interval; null "
                        "if that is not known of this cGPU.",
                    },
                    "used_mb": {
                        "type": ["integer", "null"],
                        "minimum": 0,
                        "description": "MiB of GPU memory in use, the most of the interval.",
                    },
                },
                title="CgpuReading",
            ),
        },
        "path": common.nullable(
            common.record(
                {
                    "sent_bytes_per_second": {
                        **_RATE,
                        "description": "From the VM to its cGPUs; null in the first interval and after a gap.",
                    },
                    "received_bytes_per_second": {
                        **_RATE,
                        "description": "From the cGPUs to the VM; null in the first interval and after a gap.",
                    },
                    "connections": {
                        "type": "integer",
                        "minimum": 0,
                        "description": "Open connections to cGPUs at the end of the interval.",
                    },
                    "dropped_packets": {
                        "type": ["integer", "null"],
                        "minimum": 0,
                        "description": "Packets and connections of the VM that were refused in the interval.",
                    },
                },
                title="PathReading",
                description="What passed between the VM and its cGPUs; null if that was not reported.",
            )
        ),
    },
    title="LeaseReading",
    description="What is known of a lease in one interval.",
)

_PERCENT = {"type": ["number", "null"], "minimum": 0, "maximum": 100}

USAGE = common.record(
    {
        "gpu_hours": {
            "type": "number",
            "minimum": 0,
            "description": "GPUs times hours until its release, or until now; a part of a GPU counts as that fraction.",
        },
        "mean_utilisation": {
            **_PERCENT,
            "description": "Percent of the time in which a kernel ran, as a mean over all cGPUs; null if not known.",
        },
        "peak_utilisation": {
            **_PERCENT,
            "description": "Percent, the highest reading of any cGPU; null if not known.",
        },
        "peak_memory_mb": {
            "type": ["integer", "null"],
            "minimum": 0,
            "description": "MiB, the most GPU memory that one cGPU was seen to use; null if not known.",
        },
    },
    title="LeaseUsage",
)

SHOWN = common.record(
    {
        "readings": common.record(
            {
                "lease_id": {"type": "string"},
                "idle_since": {
                    **common.nullable(common.TIME),
                    "description": "Since when nothing has used the lease; null if it is in use, or that is not known.",
                },
                "series": {
                    "type": "array",
                    "description": "The same readings at each resolution, the finest first.",
                    "items": common.record(
                        {
                            "seconds": {
                                "enum": [resolution.seconds for resolution in RESOLUTIONS],
                                "description": "The length of its intervals.",
                            },
                            "points": {
                                "type": "array",
                                "description": "Oldest first; intervals without a reading are left out.",
                                "items": POINT,
                                "maxItems": max(resolution.kept for resolution in RESOLUTIONS),
                            },
                        },
                        title="Series",
                    ),
                },
            },
            title="Readings",
        )
    }
)
