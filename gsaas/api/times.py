# SPDX-License-Identifier: Apache-2.0
"""Times in requests and responses: ISO 8601, UTC, with a Z at the end.

Requests may also have them as other programs write them, where it is plain which time is meant: with a space for the T
(Blazar, SQL), with nanoseconds, of which microseconds count, and with the zone that Go writes after the offset.
"""

from __future__ import annotations

import datetime
import re

from gsaas import exceptions

PATTERN = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,9})?)?"
    r"( ?([Zz]|UTC|GMT|[+-][0-9]{2}(:?[0-9]{2})?( [A-Z]{3,5})?))?)?$"
)
"""What `parse` takes."""
FORM = (
    "a date such as 2026-11-01, or a time such as 2026-11-01T12:00:00Z or 2026-11-01T13:00:00+01:00"
)
"""It in a sentence."""


def iso(when: datetime.datetime | None) -> str | None:
    """Return a time from the database (UTC, without a time zone) in ISO 8601; None for None."""
    return None if when is None else when.isoformat(timespec="microseconds") + "Z"


def said(when: datetime.datetime) -> str:
    """Return a time from the database as sentences have it: `2026-11-01 12:00 UTC`."""
    return when.isoformat(sep=" ", timespec="minutes") + " UTC"


def parse(text: str, name: str) -> datetime.datetime:
    """Return the time in *text*, in UTC without a time zone; it is in UTC unless it has an offset.

    *text* matches `PATTERN`: a time, or a date, which means its midnight. *name* is that of the parameter. Raises
    `BadRequest` for a time that does not exist, such as the 30th of February.
    """
    # The offset says what the zone after it says.
    plain = re.sub(r"([+-][0-9:]+) [A-Z]+$", r"\1", text)
    plain = re.sub(r" ?(UTC|GMT|z)$", "Z", plain)
    try:
        time = datetime.datetime.fromisoformat(re.sub(r" (?=[Z+-])", "", plain))
        return time if time.tzinfo is None else time.astimezone(datetime.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError) as error:
        raise exceptions.BadRequest(reason=f"{name} is {text!r}: {error}") from None
