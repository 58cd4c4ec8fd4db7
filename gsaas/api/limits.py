"""Limits: how much the project may hold, and how much it does."""

from __future__ import annotations

from gsaas.api.service import Call, Reply
from gsaas.db import limits as held
from gsaas.gpgpums.queue_scheduler import asked
from gsaas.limits import base
from gsaas.objects.placement import Placement


def show(call: Call) -> Reply:
    """Show the quota of the caller's project, and what it uses of it."""
    project_id = call.context.project_id
    limits = call.service.limits.of(project_id)
    with call.service.database.read() as session:
        used = held.usage(session, project_id)
    shown = {name: {"limit": limits[name], "used": used[name]} for name in base.UNITS}
    return Reply(200, {"limits": shown})


def check(call: Call, quota: base.Amounts, placement: Placement) -> None:
    """Raise `QuotaExceeded` if the caller's project may not have *placement* now.

    The claim counts again, when nobody can come between.
    """
    if base.limited(quota):
        with call.service.database.read() as session:
            used = held.usage(session, call.context.project_id)
        base.check(quota, used, asked(placement))
