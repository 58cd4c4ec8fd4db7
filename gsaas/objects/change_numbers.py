# SPDX-License-Identifier: Apache-2.0
"""Numbers of changes, and what a reader that follows the changes has seen of them.

Rows get their numbers before their transaction commits, and transactions do not commit in the order of their numbers,
whether these come from an auto-increment, a sequence or a clock. A reader that remembers one number and reads the rows
above it loses each row that is committed later with a smaller one.

1. A change number is that of a *writer* and a count: `writer * PER_WRITER + count`. A writer makes one transaction at
   a time (`gsaas.db.change_numbers`), so its own changes are committed in the order of their numbers: a reader that
   sees one of them sees all smaller ones of the same writer. Numbers of different writers say nothing about each other.
2. So a reader remembers one number for each writer, a version vector. All other numbers are unseen: those above it, and
   all those of writers that it does not know.
3. A row has the number of its last change. A reader that has read all rows with unseen numbers, in one statement, knows
   every row as it was at that moment.
"""

from __future__ import annotations

PER_WRITER = 2**36
"""Changes that one writer can make. There can be 2**27 writers: then numbers have 63 bits."""

END = 2**63 - 1
"""Larger than every number."""


def writer_of(number: int) -> int:
    """Return the writer of a change."""
    return number // PER_WRITER


class SeenChanges:
    """The changes that a reader has seen. Not thread-safe."""

    def __init__(self) -> None:
        self._largest: dict[int, int] = {}

    def __len__(self) -> int:
        """Return the number of known writers."""
        return len(self._largest)

    def see(self, number: int) -> None:
        """Note that a row with *number* was read, in a statement that read all rows with unseen numbers."""
        writer = writer_of(number)
        if number > self._largest.get(writer, -1):
            self._largest[writer] = number

    def see_own(self, number: int) -> bool:
        """Note that all that the transaction *number* has changed is known; return whether that counts.

        It counts only if it follows what was seen of the same writer: else something in between would be lost.
        """
        writer = writer_of(number)
        if number - 1 != self._largest.get(writer, writer * PER_WRITER):
            return False
        self._largest[writer] = number
        return True

    def has(self, number: int) -> bool:
        """Return whether a change was seen."""
        return number <= self._largest.get(writer_of(number), -1)

    def unseen(self) -> list[tuple[int, int]]:
        """Return the unseen numbers as intervals between two bounds, both exclusive, in order."""
        intervals, after = [], -1
        for writer in sorted(self._largest):
            first = writer * PER_WRITER
            if first > after + 1:
                intervals.append((after, first))
            after = self._largest[writer]
        intervals.append((after, END))
        return intervals
