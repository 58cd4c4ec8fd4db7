# SPDX-License-Identifier: Apache-2.0
"""Schema of the response to a health check."""

from __future__ import annotations

from gsaas.api.schemas import common

HEALTHY = common.record({"status": {"const": "ok"}})
