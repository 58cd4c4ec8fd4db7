# SPDX-License-Identifier: Apache-2.0
"""When leases end: which end a request may ask for, and what is to happen by then. Pure.

1. A lease that asks for a duration ends that long after it has got its GPUs: the time in the queue does not count. One
   that names its end ends then, even if it still waits.
2. `[leases]longest_duration` counts from when it has its GPUs, however often its end is postponed.
3. Its owner is warned once of each end. So one that is postponed is announced again.

Times are UTC, without a time zone in the value.
"""

from __future__ import annotations

import datetime
import enum
from dataclasses import dataclass

from gsaas import exceptions
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import ENTITLED, Status

CLOCK_TOLERANCE = datetime.timedelta(minutes=1)
"""How far beyond the longest duration an end may be, because the clocks of callers differ, and requests take time."""


@dataclass(frozen=True)
class EndPolicy:
    """What the operator has configured, in seconds; 0: nothing of the kind."""

    longest: int = 0
    default: int = 0


@dataclass(frozen=True)
class End:
    """The end that a lease is to have; neither: none."""

    at: datetime.datetime | None = None
    duration: int | None = None
    """Seconds, from when it has its GPUs."""

    def __post_init__(self) -> None:
        if self.at is not None and self.duration is not None:
            raise exceptions.BadRequest(
                reason="a lease has a duration or an end at a certain time, not both"
            )

    @property
    def is_none(self) -> bool:
        """Return whether it is none."""
        return self.at is None and self.duration is None


NO_END = End()


class Decision(enum.Enum):
    """What is to happen to a lease now."""

    NOTHING = enum.auto()
    WARN = enum.auto()
    END = enum.auto()


def decide(lease: Lease, warn_before: datetime.timedelta, now: datetime.datetime) -> Decision:
    """Return what is to happen to *lease* by *now*."""
    if lease.ends_at is None or lease.status not in (Status.QUEUED, *ENTITLED):
        return Decision.NOTHING
    if now >= lease.ends_at:
        return Decision.END
    is_due = lease.status in ENTITLED and now >= lease.ends_at - warn_before
    return Decision.WARN if is_due and lease.warned_end != lease.ends_at else Decision.NOTHING


def at_claim(lease: Lease, now: datetime.datetime) -> datetime.datetime | None:
    """Return when a lease ends that gets its GPUs *now*; None: never."""
    if lease.duration is None:
        return lease.ends_at
    return now + datetime.timedelta(seconds=lease.duration)


def asked(policy: EndPolicy, wanted: End, now: datetime.datetime) -> End:
    """Return the end of a new lease whose request wants this one.

    Raises `EndInPast`, `EndTooLate`, and `EndMissing` if there has to be one.
    """
    if wanted.is_none:
        if not policy.default and policy.longest:
            raise exceptions.EndMissing(longest=span(policy.longest))
        return of_plain_server(policy)
    _check(policy, wanted, now, now)
    return wanted


def of_plain_server(policy: EndPolicy) -> End:
    """Return the end of a lease whose owner cannot name one."""
    return End(duration=min(filter(None, (policy.default, policy.longest)), default=None))


def changed(policy: EndPolicy, lease: Lease, wanted: End, now: datetime.datetime) -> Lease:
    """Return *lease* with the end that its owner wants now.

    Raises `EndInPast`, `EndTooLate`, `EndMissing`, and `EndIsOver`.
    """
    if lease.status not in (Status.QUEUED, *ENTITLED):
        raise exceptions.EndIsOver(id=lease.id, status=lease.status)
    if wanted.is_none and policy.longest:
        raise exceptions.EndMissing(longest=span(policy.longest))
    since = lease.claimed_at or now
    _check(policy, wanted, since, now)
    ends_at = wanted.at
    if wanted.duration is not None and lease.claimed_at is not None:
        ends_at = lease.claimed_at + datetime.timedelta(seconds=wanted.duration)
    return lease.with_(ends_at=ends_at, duration=wanted.duration)


def span(seconds: float) -> str:
    """Return a duration in days, hours, minutes and seconds, such as `1 d 12 h`."""
    parts, rest = [], round(seconds)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        number, rest = divmod(rest, size)
        if number:
            parts.append(f"{number} {unit}")
    return " ".join(parts) or "0 s"


def _check(
    policy: EndPolicy, wanted: End, since: datetime.datetime, now: datetime.datetime
) -> None:
    """Raise `EndInPast` or `EndTooLate` for an end that a lease with GPUs since then may not have."""
    if wanted.is_none:
        return
    at = wanted.at
    if at is None:
        at = since + datetime.timedelta(seconds=wanted.duration or 0)
    if at <= now:
        field = "lease.ends_at" if wanted.duration is None else "lease.duration"
        raise exceptions.EndInPast(field=field, at=_iso(at), now=_iso(now))
    longest = datetime.timedelta(seconds=policy.longest)
    tolerance = CLOCK_TOLERANCE if wanted.duration is None else datetime.timedelta(0)
    if longest and at - since > longest + tolerance:
        raise exceptions.EndTooLate(
            asked=span((at - since).total_seconds()),
            longest=span(policy.longest),
            latest=_iso(since + longest),
        )


def _iso(when: datetime.datetime) -> str:
    return when.isoformat(sep=" ", timespec="minutes") + " UTC"
