# SPDX-License-Identifier: Apache-2.0
"""The draft of one transaction: what is to become of its changes, as far as that is planned. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from gsaas import exceptions
from gsaas.gpgpums.changes import Change, Entry
from gsaas.objects.gpu import Gpu
from gsaas.objects.lease import Lease
from gsaas.objects.placement import Share
from gsaas.objects.reservation import Reservation

REFUSALS = (exceptions.NoCapacity, exceptions.NeverFits, exceptions.QuotaExceeded)
"""Outcomes that depend on which GPUs there are, and on what was planned before."""


@dataclass
class LockedRows:
    """Rows that the transaction has locked, as they are."""

    projects: set[str] = field(default_factory=set)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    shares: dict[str, Sequence[Share]] = field(default_factory=dict)
    """Lease -> the shares of a reservation that it has."""
    gpus: dict[str, int] = field(default_factory=dict)
    """GPU -> the TCP port of its daemon."""


class LeftOut(Exception):
    """A change is not written with the others of its transaction."""


class Draft:
    """The outcomes of *changes*, by their places, in the order in which they were planned."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self.changes = changes
        self.locked = LockedRows()
        self.barred: set[str] = set()
        """GPUs that were chosen, and that other transactions have locked or changed: no request chooses them again."""
        self._outcomes: dict[int, Entry | Exception] = {}
        self._settled: set[int] = set()
        """Places whose outcome is final, whatever becomes of the other changes."""

    def settle(self, outcomes: Mapping[int, Exception]) -> None:
        """Set outcomes that are known without a plan."""
        self._outcomes.update(outcomes)
        self._settled |= outcomes.keys()

    def set(self, place: int, outcome: Entry | Exception) -> None:
        """Set the outcome of a plan."""
        self._outcomes[place] = outcome

    @property
    def pending(self) -> list[int]:
        """Return the places of the changes that are to be planned."""
        return [place for place in range(len(self.changes)) if place not in self._outcomes]

    @property
    def entries(self) -> list[Entry]:
        """Return the entries, each planned with the GPUs as those before it leave them."""
        return [one for one in self._outcomes.values() if isinstance(one, Entry)]

    @property
    def has_something_to_write(self) -> bool:
        """Return whether something becomes of a change."""
        return any(entry != Entry() for entry in self.entries)

    @property
    def gpus(self) -> dict[str, Gpu]:
        """Return the GPUs of the entries as these leave them, by UUID."""
        return {uuid: gpu for entry in self.entries for uuid, gpu in entry.gpus.items()}

    @property
    def unlocked(self) -> list[str]:
        """Return the GPUs of the entries that are not locked."""
        return [uuid for uuid in self.gpus if uuid not in self.locked.gpus]

    def take_back(self, lost: Collection[str]) -> None:
        """Take back what was planned with GPUs that are not as the plan had them.

        That are the entries of these GPUs, those that share a GPU with an entry before them that is taken back, and all
        refusals: what was counted before them is not so any more.
        """
        if not lost:
            return
        gone = set(lost)
        for place, one in list(self._outcomes.items()):
            if isinstance(one, Entry):
                if gone & one.gpus.keys():
                    gone |= one.gpus.keys()
                    del self._outcomes[place]
            elif place not in self._settled:
                del self._outcomes[place]

    def outcomes(self) -> list[Entry | Exception]:
        """Return the outcome of each change, in their order.

        One that is not planned is left out, and so is one that was refused while GPUs are barred.
        """
        found = []
        for place in range(len(self.changes)):
            one = self._outcomes.get(place, LeftOut())
            is_unsure = isinstance(one, REFUSALS) and self.barred
            found.append(LeftOut() if is_unsure else one)
        return found
