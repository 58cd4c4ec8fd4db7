# SPDX-License-Identifier: Apache-2.0
"""Times between people and the API, by the clock and in the time zone of this machine."""

from __future__ import annotations


def for_api(text: str) -> str:
    """Convert a time as people write it, such as `tomorrow 9:00`, to one that the API takes. Raises `ValueError`."""
    # Imported here, because most commands get no time.
    from datetime import UTC, datetime

    from gsaasclient.quantities import moment

    try:
        found = moment(text, datetime.now(UTC)).astimezone(UTC)
    except OverflowError:  # a year that this zone has and UTC has not
        raise ValueError(f"is not a time that there is: '{text}'") from None
    return found.isoformat().replace("+00:00", "Z")


def age(then: str, now: float) -> str:
    """Return how long a time of the API is before *now*, which `time.time` counts: `45s`, `5m`, `3h` or `2d`."""
    from datetime import datetime

    seconds = max(0, int(now - datetime.fromisoformat(then).timestamp()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def local(then: str | None) -> str | None:
    """Return a time of the API in the time zone of this machine, such as `2026-12-01 09:00:00`; None for None."""
    from datetime import datetime

    if then is None:
        return None
    found = datetime.fromisoformat(then)
    try:
        found = found.astimezone()
    except OverflowError:  # a year that UTC has and this zone has not
        return f"{found:%Y-%m-%d %H:%M:%S} UTC"
    return f"{found:%Y-%m-%d %H:%M:%S}"


HALF_A_YEAR = 182 * 86400
"""Seconds from which on a short time names its year, as `ls` has it."""


def minute(then: str | None) -> str | None:
    """Return what `local` returns, without seconds: `2026-12-01 09:00`; None for None."""
    text = local(then)
    return text and text[:16] + text[19:]


def short(then: str | None, now: float) -> str | None:
    """Return the same in at most 11 characters: `12-01 09:00`, or `2025-03-01` half a year from *now* or farther away.

    *now* is as `time.time` counts; None for None.
    """
    from datetime import datetime

    text = local(then)
    if text is None or then is None:
        return None
    far = abs(datetime.fromisoformat(then).timestamp() - now) > HALF_A_YEAR
    return text[:10] if far else text[5:16]


def describe_estimate(seconds: float | None) -> str:
    """Return a time to wait as `about 12 min`; empty for None."""
    text = rounded(seconds)
    return f"about {text}" if text else ""


def rounded(seconds: float | None) -> str:
    """Return a time to wait, rounded, in seconds, minutes or hours; empty for None."""
    if seconds is None:
        return ""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3600)} h"
