# SPDX-License-Identifier: Apache-2.0
"""Policies with options of their own, as `[gpgpums]` sets them in the service."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from gsaas.gpgpums import policies as installed
from gsaas.gpgpums.policies.base import Policy
from gsaas.sim import policies

DEFAULTS: Mapping[str, Any] = {"fewer_jobs_node_inside": "worst-fit", "remote_price": 1.0}
"""The options of the group gpgpums that change what a policy does, with their defaults there."""
HIGHEST_PRICE = 10_000.0


def load(name: str, options: Mapping[str, Any]) -> Policy:
    """Return the policy *name* with *options*, by the names that they have in the group gpgpums.

    Raises `ValueError` for an option that there is not, or a value that it cannot have, and what
    `gsaas.sim.policies.load` raises.
    """
    default = policies.load(name)
    if not options:
        return default
    for option in options:
        if option not in DEFAULTS:
            raise ValueError(f"there is no option {option!r}; there are {', '.join(DEFAULTS)}")
    values = {**DEFAULTS, **options}
    price = values["remote_price"]
    if isinstance(price, bool) or not isinstance(price, int | float):
        raise ValueError(f"remote_price is not a number: {price!r}")
    if not 0 <= price <= HIGHEST_PRICE:
        raise ValueError(f"remote_price is a number from 0 to {HIGHEST_PRICE:g}, not {price:g}")
    known = installed.instances()
    known[name].configure(SimpleNamespace(gpgpums=SimpleNamespace(**values)), known)
    return known[name]
