# SPDX-License-Identifier: Apache-2.0
"""Schemas of version documents."""

from __future__ import annotations

from gsaas.api.schemas import common

VERSION = common.record(
    {
        "id": {"type": "string"},
        "status": {"type": "string"},
        "min_version": {"type": "string"},
        "max_version": {"type": "string"},
        "links": common.LINKS,
    },
    title="Version",
)

ONE = common.record({"version": VERSION})
MANY = common.record({"versions": {"type": "array", "items": VERSION}})
