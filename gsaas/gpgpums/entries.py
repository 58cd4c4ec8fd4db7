# SPDX-License-Identifier: Apache-2.0
"""The entries of a transaction: what its changes write into the books, and the draft of them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from gsaas import exceptions
from gsaas.objects.gpu import Gpu
from gsaas.objects.lease import Claim, Lease
from gsaas.objects.lifecycle import LeaseEvent
from gsaas.objects.placement import Share
from gsaas.objects.reservation import Reservation, ReservationStatus, ReservedShare


@dataclass(frozen=True)
class Announce:
    """A lease has left the queue: whoever waits for it is to be told."""

    lease_id: str
    status: str
    policy: str | None = None
    """The policy that chose its GPUs; None if it has none."""
    timings: Mapping[str, float] | None = None


@dataclass(frozen=True)
class AdvanceQueue:
    """A lease in the queue may fit now."""


Effect: TypeAlias = Announce | AdvanceQueue
"""What the committer does once the entry is committed."""


@dataclass(frozen=True)
class ReservationEntry:
    """What an entry writes of a reservation."""

    before: Reservation
    """As it was read; of a new one, all of it."""
    is_new: bool = False
    status: ReservationStatus | None = None
    """Its new status; None if it stays."""
    moves: Sequence[tuple[ReservedShare, Share]] = ()
    """Shares that it does not keep any more where they were, and where each of them is then."""
    placings: int = 0
    """What `View.placings` returned before *moves* were chosen."""
    kept: Sequence[ReservedShare] = ()
    """Shares that it keeps from now on."""
    taken: Sequence[ReservedShare] = ()
    """Shares that the lease of the entry claims."""
    is_over: bool = False
    """It keeps nothing any more."""


@dataclass(frozen=True)
class Entry:
    """What one change writes into the books, all of it or nothing."""

    gpus: Mapping[str, Gpu] = field(default_factory=dict)
    """The GPUs that it changes, as they are then, by UUID."""
    before: Lease | None = None
    """The lease as it is stored; None for a new one."""
    lease: Lease | None = None
    """The lease as it is then; None if nothing becomes of one."""
    events: Sequence[LeaseEvent] = ()
    reservation: ReservationEntry | None = None
    effects: Sequence[Effect] = ()

    @property
    def claims(self) -> Sequence[Claim]:
        """Return the claims that it adds."""
        had_them = self.before is not None and self.before.claims
        return () if self.lease is None or had_them else self.lease.claims

    @property
    def returns_claims(self) -> bool:
        """Return whether it deletes all claims of its lease."""
        return bool(self.before and self.before.claims and self.lease and not self.lease.claims)

    @property
    def rewrites_claims(self) -> bool:
        """Return whether it writes other claims in the place of those of its lease, because cGPUs of it move."""
        if self.before is None or self.lease is None or not self.before.claims:
            return False
        return bool(self.lease.claims) and self.before.all_claims != self.lease.all_claims


@dataclass(frozen=True)
class Rows:
    """Rows that are to be locked before a change is planned, by what identifies them."""

    project: str | None = None
    lease: str | None = None
    reservation: str | None = None
    placings: bool = False
    """No other transaction may place a reservation until this one ends."""


class RowsNeededError(Exception):
    """A plan needs rows that are not locked yet: it is made again when they are."""

    def __init__(self, lease_id: str, project_id: str | None) -> None:
        super().__init__(lease_id)
        self.lease_id = lease_id
        self.project_id = project_id


REFUSALS = (
    exceptions.NoCapacity,
    exceptions.NeverFits,
    exceptions.QuotaExceeded,
    exceptions.LeaseNotMovable,
)
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


class LeftOutError(Exception):
    """A change is not written with the others of its transaction, and may be committed with the next ones."""


class Draft:
    """The outcomes of a *number* of changes, by their places, in the order in which they were planned."""

    def __init__(self, number: int) -> None:
        self._places = range(number)
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
        return [place for place in self._places if place not in self._outcomes]

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
        for place in self._places:
            one = self._outcomes.get(place, LeftOutError())
            is_unsure = isinstance(one, REFUSALS) and self.barred
            found.append(LeftOutError() if is_unsure else one)
        return found
