# SPDX-License-Identifier: Apache-2.0
"""Gives rows of former writers new numbers, so that readers have few writers to remember.

Correctness does not depend on which writers are former ones: a reader finds a row with a number that it has not seen,
whosever it is (`gsaas.objects.change_numbers`).
"""

from __future__ import annotations

import datetime
from functools import partial

from sqlalchemy import Connection, bindparam, delete, select, update

from gsaas.db import clock
from gsaas.db.change_numbers import LIFETIME
from gsaas.db.database import Database
from gsaas.db.models import GpuRow, GpuWriterRow, change_number, table_of
from gsaas.objects.change_numbers import PER_WRITER

_GPUS, _WRITERS = table_of(GpuRow), table_of(GpuWriterRow)

FORMER_AFTER = datetime.timedelta(seconds=2 * LIFETIME)
"""The age of a writer that is no longer in use; no harm is done if it is."""

_FORMER = select(_WRITERS.c.id).where(_WRITERS.c.created_at < bindparam("before"))
_UNNUMBERED_GPU = select(_GPUS.c.uuid).where(_GPUS.c.change_number < PER_WRITER).limit(1)

UNNUMBERED = 0
"""The writer of rows that have not changed since before there were change numbers."""


AT_ONCE = 50
"""Rows that one transaction locks."""

BATCHES = 20
"""Transactions of one `tidy`."""


def tidy(database: Database) -> None:
    """Give some of the rows of former writers new numbers. To be called now and then, by any process."""
    with database.reading() as connection:
        writers = former(connection)
    batches = iter(range(BATCHES))
    for writer in writers:
        for _ in batches:
            if not database.change(partial(renumber, writer=writer, at_most=AT_ONCE)):
                break


def former(connection: Connection) -> list[int]:
    """Return the writers that are no longer in use and may have rows."""
    found = list(connection.scalars(_FORMER, {"before": clock.now(connection) - FORMER_AFTER}))
    return [*found, *([] if connection.scalar(_UNNUMBERED_GPU) is None else [UNNUMBERED])]


def renumber(connection: Connection, writer: int, at_most: int) -> bool:
    """Give up to *at_most* rows of a *writer* new numbers, and forget it if it has no other; return whether it has.

    What is claimed of these GPUs stays, and claims of them succeed.
    """
    first = writer * PER_WRITER
    query = select(_GPUS.c.uuid).where(
        _GPUS.c.change_number >= first, _GPUS.c.change_number < first + PER_WRITER
    )
    # Claims lock rows in this order, too.
    uuids = list(connection.scalars(query.order_by(_GPUS.c.uuid).limit(at_most + 1)))
    for uuid in uuids[:at_most]:
        connection.execute(
            update(_GPUS)
            .where(_GPUS.c.uuid == uuid)
            .values(change_number=change_number(connection))
        )
    if len(uuids) > at_most:
        return True
    connection.execute(delete(_WRITERS).where(_WRITERS.c.id == writer))
    return False
