# SPDX-License-Identifier: Apache-2.0
"""Check that reservations, which were made under other limits perhaps, are within those of today."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oslo_config import cfg
from sqlalchemy import Connection

from gsaas import exceptions, limits
from gsaas.checkup.findings import Finding, ok, warn
from gsaas.db import clock, projects, reservations
from gsaas.limits.base import NOTHING, fits
from gsaas.objects.reservation import Horizon, Reservation

PART = "reservations"
NAMED = 3
"""Reservations and projects that a finding names."""


def check(connection: Connection, conf: cfg.ConfigOpts) -> Iterator[Finding]:
    """Yield what is beyond the limits of [quotas] and of projects; nothing ends for that reason."""
    live, beyond = reservations.live(connection), too_long(conf, connection)
    if beyond:
        yield _named_too_long(beyond)
    over = _over_quota(connection, conf, live)
    if over:
        yield warn(
            PART,
            f"{_named(over)} have more in leases and reservations together than their quota allows; both stay, and "
            "they get nothing more",
            "openstack gpu reservation list --all-projects lists them; openstack gpu reservation delete cancels one, "
            "or raise the quota",
        )
    if not beyond and not over:
        yield ok(PART, f"{len(live)} reservations, all of them within the limits")


def too_long(conf: cfg.ConfigOpts, connection: Connection) -> list[Reservation]:
    """Return the reservations that are longer, or begin later, than one that is made now may."""
    now, days = clock.now(connection), conf.quotas
    horizon = Horizon.of_days(days.reservation_days, days.reservation_days_ahead)
    live = reservations.live(connection)
    return [one for one in live if horizon.exceeded(one.start, one.end, now)]


def _named_too_long(beyond: Sequence[Reservation]) -> Finding:
    one = len(beyond) == 1
    return warn(
        PART,
        f"{_named([each.id for each in beyond])} {'is' if one else 'are'} longer than [quotas]reservation_days, or "
        f"{'begins' if one else 'begin'} later than reservation_days_ahead; {'it stays' if one else 'they stay'}",
        "openstack gpu reservation delete cancels one; or raise the limits",
    )


def _over_quota(
    connection: Connection, conf: cfg.ConfigOpts, live: Sequence[Reservation]
) -> list[str]:
    """Return the projects with reservations that use more than their quota; none if that cannot be read."""
    try:
        quotas = limits.load(conf)
        return [
            f"project {project}"
            for project in sorted({one.project_id for one in live})
            if not fits(quotas.of(project), projects.usage(connection, project), NOTHING)
        ]
    except (ValueError, exceptions.IdentityUnavailable):
        return []  # the check of quotas reports it


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
