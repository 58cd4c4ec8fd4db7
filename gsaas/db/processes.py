# SPDX-License-Identifier: Apache-2.0
"""The releases of the controllers' processes, for a check whether an update is complete."""

from __future__ import annotations

import datetime
import logging
import socket
import threading
from collections.abc import Sequence

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from gsaas import version
from gsaas.db import clock
from gsaas.db.database import Database, retried
from gsaas.db.models import ProcessRow
from gsaas.db.upsert import upsert

LOG = logging.getLogger(__name__)

INTERVAL = 60.0
"""Seconds between two records of a process."""
SILENCE = datetime.timedelta(seconds=5 * INTERVAL)
"""After this, a process counts as ended."""
KEPT = datetime.timedelta(days=1)


def record(session: Session, program: str, host: str) -> None:
    """Record that *program* runs on *host* with this release; forget the programs that ended a day ago."""
    now = clock.now(session.connection())
    row = {"program": program, "host": host, "release": version.RELEASE, "seen_at": now}
    upsert(session, ProcessRow, [row])
    session.execute(delete(ProcessRow).where(ProcessRow.seen_at < now - KEPT))


def running(session: Session) -> Sequence[ProcessRow]:
    """Return the processes that were recorded lately."""
    since = clock.now(session.connection()) - SILENCE
    query = select(ProcessRow).where(ProcessRow.seen_at >= since)
    return session.scalars(query.order_by(ProcessRow.program, ProcessRow.host)).all()


@retried
def _record_now(database: Database, program: str) -> None:
    with database.write() as session:
        record(session, program, socket.gethostname())


def keep_recording(database: Database, program: str, stopping: threading.Event) -> None:
    """Record this process every `INTERVAL` seconds until *stopping* is set."""
    while not stopping.is_set():
        try:
            _record_now(database, program)
        except Exception as error:  # noqa: BLE001  (the database may be down; nothing depends on this record)
            LOG.info("could not record that %s runs: %s", program, error)
        stopping.wait(INTERVAL)
