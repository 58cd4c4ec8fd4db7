"""What is limited, and the rule: used + asked may not be more than the limit. Values in, values out.

The names are those of Keystone's registered limits, of the options in `[quotas]`, and of the API.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any

from gsaas import exceptions

UNLIMITED = -1

UNITS = {"cgpus": "cGPUs", "gpu_memory_mb": "MiB of GPU memory", "leases": "leases"}
"""Each thing that is limited, and what to call it in a sentence."""

Amounts = Mapping[str, int]
"""How much of each; its names are those of `UNITS`."""

NO_LIMITS = dict.fromkeys(UNITS, UNLIMITED)
NOTHING = dict.fromkeys(UNITS, 0)


class Limits(abc.ABC):
    """Knows how much each project may hold. Shared by all threads."""

    @abc.abstractmethod
    def of(self, project_id: str) -> Amounts:
        """The project's limits; `UNLIMITED` where there is none. `IdentityUnavailable` if Keystone,
        asked for them, does not answer."""


def lease(shares: Sequence[int]) -> Amounts:
    """What one lease amounts to, from the MiB of each of its cGPUs."""
    return {"cgpus": len(shares), "gpu_memory_mb": sum(shares), "leases": 1}


def limited(limits: Amounts) -> bool:
    """Is there any limit at all?"""
    return any(limit != UNLIMITED for limit in limits.values())


def check(limits: Amounts, used: Amounts, asked: Amounts) -> None:
    """Return if *asked* fits; raise `QuotaExceeded`, which names everything that does not."""
    if over := _over(limits, used, asked):
        raise exceptions.QuotaExceeded(reason=_sentence(over), details={"quotas": over})


def fits(limits: Amounts, used: Amounts, asked: Amounts) -> bool:
    """As `check`, for who need not know why not."""
    return not _over(limits, used, asked)


def _over(limits: Amounts, used: Amounts, asked: Amounts) -> list[dict[str, Any]]:
    return [
        {"name": name, "used": used[name], "asked": asked[name], "limit": limits[name]}
        for name in UNITS
        if limits[name] != UNLIMITED and used[name] + asked[name] > limits[name]
    ]


def _sentence(over: list[dict[str, Any]]) -> str:
    parts = [
        f"{row['asked']} {UNITS[row['name']]} asked for, {row['used']} of at most {row['limit']} in use"
        for row in over
    ]
    return f"the project's quota does not allow it: {'; '.join(parts)}"
