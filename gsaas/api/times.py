"""Times on the wire: ISO 8601, UTC, with a Z."""

from __future__ import annotations

import datetime


def iso(when: datetime.datetime | None) -> str | None:
    """Write a time from the database, which is UTC and says so nowhere."""
    return None if when is None else when.isoformat(timespec="microseconds") + "Z"
