# SPDX-License-Identifier: Apache-2.0
"""Schemas of limits."""

from __future__ import annotations

from gsaas.api.schemas import common
from gsaas.limits import base

_AMOUNT = common.record(
    {
        "limit": {"type": "integer", "minimum": -1, "description": "-1 means no limit."},
        "used": {"type": "integer", "minimum": 0},
    },
    title="Limit",
)

SHOWN = common.record({"limits": common.record(dict.fromkeys(base.UNITS, _AMOUNT), title="Limits")})
