# SPDX-License-Identifier: Apache-2.0
"""Moments as OpenStack writes them."""

from __future__ import annotations

import datetime


def seconds(moment: str | None) -> float:
    """*moment*, in UTC whether it says so or not, as seconds since the epoch; 0.0 for never."""
    if moment is None:
        return 0.0
    parsed = datetime.datetime.fromisoformat(moment.replace("Z", ""))
    return parsed.replace(tzinfo=datetime.UTC).timestamp()
