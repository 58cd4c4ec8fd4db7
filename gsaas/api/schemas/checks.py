# SPDX-License-Identifier: Apache-2.0
"""Schemas of dry runs."""

from __future__ import annotations

from gsaas.api import microversions
from gsaas.api.schemas import cgpus, common

CONSUMER = common.record(
    {
        "host": {
            **common.TEXT,
            "description": "The host on which the consumer runs, by its name in GSaaS.",
        }
    },
    optional=("host",),
    description="The program that would use the cGPUs; its presence makes this the check of a lease without a VM.",
)

CREATE = common.record(
    {
        "check": {
            **cgpus.REQUEST,
            "title": "CheckRequest",
            "properties": {
                **cgpus.REQUEST["properties"],
                "consumer": CONSUMER,
                "reservation": common.since(
                    microversions.CHECKS_IN_RESERVATIONS,
                    {
                        **common.TEXT,
                        "description": "The reservation of the caller's project in which they would be launched.",
                    },
                ),
            },
        }
    }
)

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
                        "gsaas.reservation.not-active",
                    ],
                    "description": "The code of the error that a launch would return; null if it fits.",
                },
                "reason": {"type": ["string", "null"]},
                "filters": cgpus.DROPPED,
                "nearest": common.nullable(cgpus.NEAREST),
                "relaxed": cgpus.RELAXED,
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
