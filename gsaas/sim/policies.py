# SPDX-License-Identifier: Apache-2.0
"""The policies that can be simulated: all but those that look at the utilisation of GPUs, which no history has.

Without readings such a policy chooses by its ties alone, as another policy does; that would say nothing about it.
"""

from __future__ import annotations

from gsaas.gpgpums import policies
from gsaas.gpgpums.policies.base import Policy


class NotSimulated(Exception):
    """A policy cannot be simulated. The message says why, and which can."""


def names() -> list[str]:
    """Return the names of the policies that can be simulated, sorted."""
    return [name for name in policies.names() if not policies.load(name).looks_at_utilisation]


def load(name: str) -> Policy:
    """Return the policy *name* with its default options. Raises `UnknownPolicy`, `NotSimulated`."""
    policy = policies.load(name)
    if policy.looks_at_utilisation:
        raise NotSimulated(
            f"{name} looks at the utilisation of GPUs, which no history has, and cannot be simulated; "
            f"there are {', '.join(names())}"
        )
    return policy
