# SPDX-License-Identifier: Apache-2.0
"""Numbers and times as people read them."""

from __future__ import annotations

import math


def seconds(value: float | None) -> str:
    """Return a duration: `0.4 ms`, `2.5 s`, `3 min 20 s`, `2 h 5 min`; a hyphen for None."""
    if value is None:
        return "-"
    if value < 1:
        return f"{value * 1000:.1f} ms"
    if value < 60:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def mebibytes(value: int | None) -> str:
    """Return an amount of memory that the API states in MiB; a hyphen for None."""
    return "-" if value is None else f"{value} MiB"


def moment(iso: str | None) -> str:
    """Return a time of the API without fractions of seconds, such as `2026-11-23 14:05:00 UTC`; a hyphen for None."""
    return "-" if not iso else f"{iso[:19].replace('T', ' ')} UTC"


def ceiling(value: float) -> float:
    """Return the next larger 1, 2 or 5 times a power of ten: the end of an axis. 1 for values that are not positive."""
    if value <= 0:
        return 1.0
    value = max(value, 1e-9)  # of smaller numbers, floating point has no powers of ten
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * factor for factor in (1, 2, 5, 10) if value <= power * factor)
