# SPDX-License-Identifier: Apache-2.0
"""Stores how many differences there are, for `gsaas.db.metrics`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

from gsaas.db import settings
from gsaas.db.database import Database, retried
from gsaas.verify.rules import Difference


@retried
def record(database: Database, left: Iterable[Difference], not_asked: int) -> None:
    """Store the differences that are *left* by kind, and how many did not answer."""
    kinds = dict(Counter(one.kind for one in left))
    value = {"at": time.time(), "differences": kinds, "not_asked": not_asked}
    with database.write() as session:
        settings.put(session, settings.VERIFIED, value)
