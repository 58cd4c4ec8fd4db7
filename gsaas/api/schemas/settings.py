# SPDX-License-Identifier: Apache-2.0
"""Schemas of settings."""

from __future__ import annotations

from gsaas.api.schemas import common

SETTINGS = common.record(
    {
        "monitor_interval": {
            "type": ["integer", "null"],
            "minimum": 1,
            "maximum": 3600,
            "description": "Seconds between two reports of each GPU host; null: each host's own configuration applies.",
        }
    },
    title="Settings",
)

UPDATE = ONE = common.record({"settings": SETTINGS})
