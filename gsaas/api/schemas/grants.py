# SPDX-License-Identifier: Apache-2.0
"""Schemas of grants."""

from __future__ import annotations

from gsaas.api.schemas import common

REDEEM = common.record(
    {
        "grant": common.record(
            {
                "key": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 4096,
                    "description": "The grant that the consumer presented: GSAAS_GRANT of the lease's environment.",
                },
                "address": {
                    "type": "string",
                    "format": "ipv4",
                    "pattern": "^[0-9.]+$",
                    "description": "The IPv4 address that presented the grant and is to be admitted.",
                },
                "lease_id": {
                    **common.TEXT,
                    "description": "The lease that the consumer claims to use.",
                },
                "project_id": {
                    **common.TEXT,
                    "description": "The project that the consumer belongs to.",
                },
            },
            optional=("lease_id", "project_id"),
        )
    }
)

REDEEMED = common.record(
    {
        "grant": common.record(
            {
                "lease_id": {"type": "string"},
                "project_id": {"type": "string"},
                "address": {
                    "type": "string",
                    "description": "The address that is admitted until the lease ends.",
                },
                "devices": {
                    "type": "array",
                    "description": "The cGPUs whose daemons it may connect to.",
                    "items": common.record(
                        {
                            "index": {"type": "integer"},
                            "memory_mb": {"type": "integer"},
                            "real_address": {"type": "string"},
                        }
                    ),
                },
            }
        )
    }
)
