# SPDX-License-Identifier: Apache-2.0
"""Find what a cloud uses and the defaults of this release refuse, where the configuration does not set them."""

from __future__ import annotations

from collections.abc import Iterator

from oslo_config import cfg
from sqlalchemy import Connection

from gsaas.checkup import reservations
from gsaas.checkup.findings import Finding, ok, warn
from gsaas.conf.grants import allows_direct
from gsaas.db import projects
from gsaas.objects.access import Access

PART = "defaults"


def check(conf: cfg.ConfigOpts, connection: Connection) -> Iterator[Finding]:
    """Yield a warning for each default that would refuse a launch like one that was accepted before."""
    found = [
        *_quota(conf, connection),
        *_direct(conf, connection),
        *_reservations(conf, connection),
    ]
    yield from found or [ok(PART, "no default refuses what this cloud uses")]


def _quota(conf: cfg.ConfigOpts, connection: Connection) -> Iterator[Finding]:
    limit = conf.quotas.cgpus
    if conf.quotas.driver != "config" or limit < 0 or not _is_default(conf, "cgpus", "quotas"):
        return
    if found := projects.projects_with(connection, limit):
        yield warn(
            PART,
            f"{found} projects have {limit} cGPUs, the default of [quotas]cgpus, or more, and get no more",
            "set [quotas]cgpus; -1 means no limit",
        )


def _direct(conf: cfg.ConfigOpts, connection: Connection) -> Iterator[Finding]:
    if allows_direct(conf) or not _is_default(conf, "direct", "grants"):
        return
    if leases := projects.leases_with(connection, Access.DIRECT):
        yield warn(
            PART,
            f"{leases} leases use real addresses of GPUs, and without [grants]key no new ones may",
            "set [grants]key; or [grants]direct, to always or never",
        )


def _reservations(conf: cfg.ConfigOpts, connection: Connection) -> Iterator[Finding]:
    names = ("reservation_days", "reservation_days_ahead")
    if not any(_is_default(conf, name, "quotas") for name in names):
        return
    if beyond := reservations.too_long(conf, connection):
        yield warn(
            PART,
            f"{len(beyond)} reservations are longer, or begin later, than [quotas] allows by default; they stay, and "
            "others like them are refused",
            f"set [quotas]{' and [quotas]'.join(names)}; 0 means no limit",
        )


def _is_default(conf: cfg.ConfigOpts, name: str, group: str) -> bool:
    location = conf.get_location(name, group)
    return location is None or location.location is cfg.Locations.opt_default
