"""What dry runs look like on the wire."""

from __future__ import annotations

from gsaas.api.schemas import cgpus, common

CREATE = common.record({"check": cgpus.REQUEST})

CHECKED = common.record(
    {
        "check": common.record(
            {
                "fits": {"type": "boolean"},
                "code": {
                    "enum": [
                        None,
                        "gsaas.capacity.busy",
                        "gsaas.capacity.impossible",
                        "gsaas.quota.exceeded",
                    ],
                    "description": "The code of the error that a launch would be answered with.",
                },
                "reason": {"type": ["string", "null"]},
                "filters": cgpus.DROPPED,
                "nearest": common.nullable(cgpus.NEAREST),
                "devices": {
                    "type": "array",
                    "items": common.record(
                        {
                            "memory_mb": {"type": "integer"},
                            "gpu_uuid": {"type": "string"},
                            "gpu_host": {"type": "string"},
                        },
                        optional=("gpu_uuid", "gpu_host"),
                    ),
                },
            },
            title="Check",
        )
    }
)
