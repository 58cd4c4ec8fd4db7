"""What grants look like on the wire."""

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
                    "description": "GSAAS_GRANT of the lease's environment, as the consumer showed it.",
                },
                "address": {
                    "type": "string",
                    "format": "ipv4",
                    "pattern": "^[0-9.]+$",
                    "description": "The IPv4 address from which it was shown, and which is to be admitted.",
                },
                "lease_id": {
                    **common.TEXT,
                    "description": "The lease that the consumer says it has.",
                },
                "project_id": {
                    **common.TEXT,
                    "description": "The project that the consumer is known to be of.",
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
                "address": {"type": "string", "description": "Admitted while the lease lasts."},
                "devices": {
                    "type": "array",
                    "description": "What it may reach.",
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
