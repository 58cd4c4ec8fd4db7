# SPDX-License-Identifier: Apache-2.0
"""Announces rare changes, which no numbered row shows, to processes that keep a copy of the GPUs and hosts."""

from __future__ import annotations

import secrets
from typing import Literal

from sqlalchemy.orm import Session

from gsaas.db.models import PoolVersionRow
from gsaas.db.upsert import upsert

ONLY = 1
"""The id of the row."""


def renew(session: Session, what: Literal["gpus", "hosts", "endpoints"]) -> None:
    """Note that a GPU was deleted, a host disabled or enabled, or an endpoint added or removed.

    Call it as late in the transaction as possible: it locks a row that all of them write. The new value is random, so
    that it need not be read before, and differs also if the database is restored from a backup meanwhile.
    """
    upsert(session, PoolVersionRow, [{"id": ONLY, what: secrets.randbits(62)}])
