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
