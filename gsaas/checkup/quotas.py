# SPDX-License-Identifier: Apache-2.0
"""Check that Keystone has a registered limit for each resource that GSaaS limits."""

from __future__ import annotations

from collections.abc import Iterator

from oslo_config import cfg

from gsaas import exceptions
from gsaas.checkup.findings import Finding, fail, ok, reason
from gsaas.limits.base import UNITS

PART = "quotas"


def check(conf: cfg.ConfigOpts) -> Iterator[Finding]:
    """Yield the limits that [quotas] sets or, with oslo_limit, what Keystone lacks."""
    if conf.quotas.driver != "oslo_limit":
        configured = [
            f"{conf.quotas[name]} {UNITS[name]}" for name in UNITS if conf.quotas[name] >= 0
        ]
        each = (
            "no limits" if conf.quotas.driver == "none" or not configured else ", ".join(configured)
        )
        yield ok(PART, f"each project: {each}, as [quotas] says")
        return
    from gsaas.limits.keystone import KeystoneLimits  # imports the OpenStack SDK, which is slow

    try:
        missing = KeystoneLimits(conf).missing()
    except (ValueError, exceptions.IdentityUnavailable) as error:
        message = reason(error.__cause__ or error)
        yield fail(PART, f"Keystone's limits cannot be read: {message}", "correct [oslo_limit]")
        return
    if missing:
        yield fail(
            PART,
            f"Keystone has no registered limit for {', '.join(sorted(missing))}, so no project gets any",
            "gsaas-manage limits register",
        )
    else:
        yield ok(PART, "Keystone has a registered limit for each of " + ", ".join(UNITS))
