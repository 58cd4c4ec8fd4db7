# SPDX-License-Identifier: Apache-2.0
"""Times in requests and responses: ISO 8601, UTC, with a Z at the end."""

from __future__ import annotations

import datetime

from gsaas import exceptions


def iso(when: datetime.datetime | None) -> str | None:
    """Return a time from the database (UTC, without a time zone) in ISO 8601; None for None."""
    return None if when is None else when.isoformat(timespec="microseconds") + "Z"


def parse(text: str, name: str) -> datetime.datetime:
    """Return the time in *text*, in UTC without a time zone: a time in ISO 8601, or a date, which means its midnight.

    *text* has passed the schema of the parameter *name*. Raises `BadRequest` for a time that does not exist, such as
    the 30th of February.
    """
    try:
        time = datetime.datetime.fromisoformat(text)
        return time if time.tzinfo is None else time.astimezone(datetime.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError) as error:
        raise exceptions.BadRequest(reason=f"{name} is {text!r}: {error}") from None
