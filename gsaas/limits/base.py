# SPDX-License-Identifier: Apache-2.0
"""The resources that are limited, and the rule: used + requested must not exceed the limit. Pure.

The names are those of Keystone's registered limits, of the options in `[quotas]`, and of the API.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gsaas import exceptions
from gsaas.objects.placement import Placement
from gsaas.objects.request import Request

UNLIMITED = -1
"""The limit that allows any amount."""

UNITS = {"cgpus": "cGPUs", "gpu_memory_mb": "MiB of GPU memory", "leases": "leases"}
"""Each limited resource, and its unit in a sentence."""

Amounts = Mapping[str, int]
"""Resource -> amount, for each resource in `UNITS`."""

NO_LIMITS = dict.fromkeys(UNITS, UNLIMITED)
NOTHING: Amounts = dict.fromkeys(UNITS, 0)


@dataclass(frozen=True)
class Usage:
    """What a project uses of its quota."""

    claimed: Amounts
    """What its leases have."""
    reserved: Amounts
    """What its reservations have, besides what its leases have of them; it has no leases."""

    @property
    def total(self) -> Amounts:
        """Return both together."""
        return {name: self.claimed[name] + self.reserved[name] for name in UNITS}


class Limits(abc.ABC):
    """The limits of every project. All threads share one instance."""

    @abc.abstractmethod
    def of(self, project_id: str) -> Amounts:
        """Return the project's limits; `UNLIMITED` for a resource without one.

        Raises `IdentityUnavailable` if the limits are Keystone's and it does not answer.
        """


def reserved(shares: Sequence[int]) -> Amounts:
    """Return what a new reservation has, which has no leases, from the memory of each of its cGPUs in MiB."""
    return {**lease(shares), "leases": 0}


def lease(shares: Sequence[int]) -> Amounts:
    """Return what one lease uses, from the memory of each of its cGPUs in MiB."""
    return {"cgpus": len(shares), "gpu_memory_mb": sum(shares), "leases": 1}


def of_placement(placement: Placement) -> Amounts:
    """Return what a lease with this placement uses."""
    return lease([share.memory_mb for share in placement.shares])


def at_least(request: Request) -> Amounts:
    """Return the least that a lease for *request* uses: the memory of a whole GPU is not known before it is placed."""
    return lease([request.memory_mb or 0] * request.count)


def limited(limits: Amounts) -> bool:
    """Return whether *limits* limit any resource."""
    return any(limit != UNLIMITED for limit in limits.values())


def check(limits: Amounts, used: Amounts, asked: Amounts, reserved: Amounts = NOTHING) -> None:
    """Raise `QuotaExceeded`, which names every exceeded limit, unless *asked* fits beside *used*.

    *reserved* is the part of *used* that reservations have.
    """
    if exceeded := _exceeded(limits, used, asked):
        reason = _sentence(exceeded, reserved)
        raise exceptions.QuotaExceeded(reason=reason, details={"quotas": exceeded})


def fits(limits: Amounts, used: Amounts, asked: Amounts) -> bool:
    """Return whether *asked* fits beside *used*."""
    return not _exceeded(limits, used, asked)


def _exceeded(limits: Amounts, used: Amounts, asked: Amounts) -> list[dict[str, Any]]:
    return [
        {"name": name, "used": used[name], "asked": asked[name], "limit": limits[name]}
        for name in UNITS
        if limits[name] != UNLIMITED and used[name] + asked[name] > limits[name]
    ]


def _sentence(exceeded: list[dict[str, Any]], reserved: Amounts) -> str:
    parts = [
        f"{row['asked']} {UNITS[row['name']]} asked for, {row['used']} of at most {row['limit']} in use"
        + (f", {reserved[row['name']]} of them reserved" if reserved[row["name"]] else "")
        for row in exceeded
    ]
    return f"the project's quota does not allow it: {'; '.join(parts)}"
