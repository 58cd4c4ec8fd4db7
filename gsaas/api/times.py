"""Times on the wire: ISO 8601, UTC, with a Z."""

from __future__ import annotations

import datetime

from gsaas import exceptions


def iso(when: datetime.datetime | None) -> str | None:
    """Write a time from the database, which is UTC and says so nowhere."""
    return None if when is None else when.isoformat(timespec="microseconds") + "Z"


def read(text: str, name: str) -> datetime.datetime:
    """Read what `iso` writes, or a date, whose midnight is meant; `BadRequest` if there is no such time.

    *name* is the parameter's. What else times look like, its schema has refused.
    """
    try:
        return datetime.datetime.fromisoformat(text.removesuffix("Z"))
    except ValueError as error:
        raise exceptions.BadRequest(reason=f"{name} is {text!r}: {error}") from None
