# SPDX-License-Identifier: Apache-2.0
"""Amounts of memory, durations and times as people write them. Pure, and without imports that a command would wait for.

Each function raises `ValueError` for text that it does not understand. The message continues a sentence that begins
with the caller's name of the value: `-poolmem is an amount of memory such as …, not 'much'`.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False  # what `typing` would say, without loading it
if TYPE_CHECKING:
    from datetime import datetime, tzinfo

MAX_DIGITS = 18
_MEMORY = re.compile(r"([0-9]+)(?:\.([0-9]+))? ?([A-Za-z]*)")
_MIB = {"": 1, "M": 1, "G": 1024, "T": 1024 * 1024}
_DURATION = re.compile(r"([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?")
_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_MOMENT = re.compile(
    r"(?:([a-z]+|[0-9]{4}-[0-9]{2}-[0-9]{2})(?: +|$))?"
    r"(?:([0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?)"
    r"(?: ?(z|utc|gmt|[+-][0-9]{2}(?::?[0-9]{2})?)(?: [a-z]{3,5})?)?)?"
)
_DAYS = {"": 0, "yesterday": -1, "today": 0, "tomorrow": 1}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def memory_mb(text: str) -> int:
    """Return an amount of memory in MiB: `2G` and `2GiB` are 2048, as are `2048M`, `2048MiB` and `2048`.

    Raises `ValueError` for less than 1 MiB, for what is not whole MiB, and for a unit that means something else.
    """
    match = _MEMORY.fullmatch(text)
    said = f"is an amount of memory such as 2G, 2048M or 2048 (MiB), not '{text}'"
    if match is None:
        raise ValueError(said)
    whole, fraction, unit = match.groups(default="")
    number = f"{whole}.{fraction}" if fraction else whole
    if unit == "m":
        raise ValueError(f"is an amount of memory, and M is MiB: did you mean {number}M?")
    letter = unit.removesuffix("iB").removesuffix("i").upper()
    if letter in ("MB", "GB", "TB"):
        meant = f"{number}{letter[0]}"
        raise ValueError(
            f"is in units of 1024: did you mean {meant}, which is {number} {letter[0]}iB?"
        )
    if letter not in _MIB:
        raise ValueError(said)
    _check_length(text, whole + fraction)
    mib: int
    mib, rest = divmod(int(whole + fraction) * _MIB[letter], 10 ** len(fraction))
    if rest:
        raise ValueError(
            f"is a whole number of MiB: did you mean {mib + 1}M? {text} is a little less"
        )
    if not mib:
        raise ValueError(f"is at least 1 MiB, not '{text}'")
    return mib


def seconds(text: str) -> int:
    """Return a duration in seconds: `10m` is 600, `2h` 7200, `1h30m` 5400, `3d` 259200; `90` and `90s` are 90.

    Raises `ValueError` for less than a second, and for text of another form.
    """
    said = f"is a duration such as 10m, 2h, 1h30m, 3d or 90 (seconds), not '{text}'"
    parts = [f"{text}s"] if text.isascii() and text.isdecimal() else []
    if not parts and (match := _DURATION.fullmatch(text)):
        parts = [part for part in match.groups() if part]
    if not parts:
        lower = text.lower()
        hint = f"; did you mean {lower}?" if lower != text and _DURATION.fullmatch(lower) else ""
        raise ValueError(f"{said}{hint}")
    _check_length(text, text)
    total = sum(int(part[:-1]) * _SECONDS[part[-1]] for part in parts)
    if not total:
        raise ValueError(f"is at least one second, not '{text}'")
    return total


def span(number: float) -> str:
    """Return a number of seconds as `seconds` reads it, in two units at most: `8m`, `7h50m`, `2d`; `0s` for none."""
    rest = max(0, round(number))
    parts: list[str] = []
    for unit, size in _SECONDS.items():
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return "".join(parts[:2]) or "0s"


def moment(text: str, now: datetime, zone: tzinfo | None = None) -> datetime:
    """Return a time, which has an offset: *now* is the present, and has one, too.

    `now`               the present
    `+2h`               so long from *now*, as `seconds` reads it
    `tomorrow 9:00`     or `today`, `yesterday`; `9:00` is today's; `tomorrow` is its midnight
    `friday 8:00`       the first one after *now*
    `2026-12-01 09:00`  or `2026-12-01T09:00`, `2026-12-01T09:00:00+01:00`, `2026-12-01T09:00Z`; `2026-12-01`;
                        with a zone's name after the offset, as Go prints it

    What has no offset is in *zone*, by default that of this machine. Raises `ValueError` for any other text.
    """
    # Imported here, because most commands get no time.
    from datetime import date, datetime, timedelta

    words = re.sub("(?<=[0-9])t(?=[0-9])", " ", text.strip().lower())
    match = _MOMENT.fullmatch(words)
    try:
        if words == "now":
            return now
        if words.startswith("+"):
            return now + timedelta(seconds=seconds(words[1:]))
        if match is None or not any(match.groups()):
            raise ValueError
        day, clock, offset = match.groups(default="")
        clock = clock.rjust(len(clock) + (clock[1:2] == ":"), "0") or "00:00"

        def at(day: date) -> datetime:
            zulu = "Z" if offset in ("z", "utc", "gmt") else offset
            found = datetime.fromisoformat(f"{day}T{clock}{zulu}")
            if offset:
                return found
            # By way of the timestamp: `astimezone` alone takes an hour off what a change of the clocks leaves out.
            if zone is None:
                return datetime.fromtimestamp(found.timestamp()).astimezone()
            return found.replace(tzinfo=zone)

        today = now.astimezone(zone).date()
        if day in _DAYS:
            return at(today + timedelta(days=_DAYS[day]))
        if day[:1].isdecimal():
            return at(date.fromisoformat(day))
        numbers = [n for n, name in enumerate(_WEEKDAYS) if len(day) > 2 and name.startswith(day)]
        ahead = timedelta(days=(numbers[0] - today.weekday()) % 7)
        found = at(today + ahead)
        return found if found > now else at(today + ahead + timedelta(days=7))
    except (ValueError, IndexError, OverflowError):
        raise ValueError(
            f"is a date or time such as tomorrow 9:00, 2026-12-01T09:00+01:00 or +2h, not '{text}'"
        ) from None


def _check_length(text: str, digits: str) -> None:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"is too large: {text[:MAX_DIGITS]}…")
