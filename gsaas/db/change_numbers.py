# SPDX-License-Identifier: Apache-2.0
"""The number that each change of a GPU's row gets; `gsaas.objects.change_numbers` says what it is for.

1. A writer belongs to one transaction at a time: from its first change until its commit was answered. The next
   transaction that gets the writer begins its changes after that, so their numbers are larger.
2. A process has `FEW` writers, because readers remember each of them. A transaction that finds all of them in use waits
   for one, but not for long: it may have locked rows that the writer's transaction waits for. Then it gets a new one.
3. A writer whose commit was not answered is never used again: that transaction may be committed yet. A writer whose
   transaction was rolled back is used again with the same number; so is one whose commit the database has refused,
   which happens often in a Galera cluster.
4. The database gives out writers, and none twice (`gpu_writers`), so it does not matter in which order it does that: a
   Galera cluster gives out every n-th number on each of n nodes. A child of a fork uses no writer of its parent.
5. A process uses a writer for `LIFETIME`, then a new one. Readers remember each writer that has rows; so that these do
   not become more and more, rows of writers that are older get new numbers (`gsaas.db.gpu_writers`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from sqlalchemy import Connection

from gsaas.objects.change_numbers import PER_WRITER

NUMBERING = "gsaas_numbering"
"""The key of a transaction's `Numbering` in the information about a connection."""

LIFETIME = 3600.0
"""Seconds for which a process uses a writer."""


FEW = 2
"""Writers of a process: one for claims, which come one after the other, and one for all else."""

PATIENCE = 0.1
"""Seconds for which a transaction waits for a writer."""


class Writer:
    """One writer of this process, and how many transactions it has committed."""

    __slots__ = ("born", "committed", "id")

    def __init__(self, writer_id: int) -> None:
        self.id = writer_id
        self.committed = 0
        self.born = time.monotonic()

    @property
    def is_old(self) -> bool:
        """Whether it is time for a new one."""
        return time.monotonic() - self.born > LIFETIME or self.committed > PER_WRITER // 2


class Writers:
    """The writers of this process; safe to share between threads."""

    def __init__(self) -> None:
        self._forget()

    def take(self) -> Writer | None:
        """Return a writer that no transaction uses; None if the transaction is to get a new one."""
        if self._owner != os.getpid():
            self._forget()
        with self._returned:
            if not self._idle and self._number >= FEW:
                self._returned.wait_for(lambda: self._idle, PATIENCE)
            writer = self._idle.pop() if self._idle else None
            if writer is None or writer.is_old:
                self._number += writer is None
                return None
            return writer

    def give_back(self, writer: Writer) -> None:
        """Let other transactions use a writer."""
        with self._returned:
            self._idle.append(writer)
            self._returned.notify()

    def drop(self) -> None:
        """Note that a writer is never given back."""
        with self._returned:
            self._number -= 1

    def _forget(self) -> None:
        self._idle: list[Writer] = []
        self._number = 0
        self._returned = threading.Condition()
        self._owner = os.getpid()


class Numbering:
    """Gives the changes of one transaction their number, which all of them share."""

    __slots__ = ("_is_new", "_writer", "_writers", "committing")

    def __init__(self, writers: Writers) -> None:
        self.committing = False
        """Whether the database was asked to commit."""
        self._writers = writers
        self._writer: Writer | None = None
        self._is_new = False

    def number(self, connection: Connection, new_writer: Callable[[Connection], int]) -> int:
        """Return the number; *new_writer* returns one that was never used."""
        if self._writer is None:
            self._writer = self._writers.take()
            if self._writer is None:
                try:
                    self._writer, self._is_new = Writer(new_writer(connection)), True
                finally:
                    if self._writer is None:
                        self._writers.drop()
        return self._writer.id * PER_WRITER + self._writer.committed + 1

    def committed(self) -> None:
        """Let the next transaction use the writer: the commit was answered."""
        if self._writer is not None:
            self._writer.committed += 1
            self._writers.give_back(self._writer)

    def failed(self, *, refused: bool) -> None:
        """Let the next transaction use the writer, if this one is sure to be rolled back and the writer to exist.

        *refused* says that the database has refused to commit, as a Galera cluster does after a conflict.
        """
        if self._writer is not None:
            if self._is_new or (self.committing and not refused):
                self._writers.drop()
            else:
                self._writers.give_back(self._writer)


def number(connection: Connection, new_writer: Callable[[Connection], int]) -> int:
    """Return the number of the changes that the transaction of *connection* makes.

    A transaction that was not begun by `gsaas.db.database.Database.writing` gets a writer of its own.
    """
    numbering: Numbering | None = connection.info.get(NUMBERING)
    if numbering is None:
        return new_writer(connection) * PER_WRITER + 1
    return numbering.number(connection, new_writer)
