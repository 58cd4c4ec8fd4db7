"""Usage: what projects held over a period."""

from __future__ import annotations

import dataclasses
import datetime

from oslo_utils import timeutils

from gsaas import exceptions
from gsaas.api import times
from gsaas.api.rbac import usage as rbac
from gsaas.api.service import Call, Reply
from gsaas.db import usage as history
from gsaas.objects.usage import Used, by_project


def show(call: Call) -> Reply:
    """Tell what the caller's project held over a period; to those who may see it, what every project did."""
    now = timeutils.utcnow()
    start, end = _period(call, now)
    own = call.context.project_id
    everybody = call.allows(rbac.SHOW_ALL_PROJECTS)
    with call.service.database.read() as session:
        found = history.holdings(session, start, end, None if everybody else own)
        used = by_project(found, start, end, now)
    if not everybody and not used:
        used = [Used(own, 0, 0.0, 0.0)]
    shown = {
        "start": times.iso(start),
        "end": times.iso(end),
        "projects": [dataclasses.asdict(project) for project in used],
    }
    return Reply(200, {"usage": shown})


def _period(call: Call, now: datetime.datetime) -> tuple[datetime.datetime, datetime.datetime]:
    """Return what the query asks for; what it leaves out is this month until now."""
    asked = call.query
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    start = times.read(asked["start"], "start") if "start" in asked else month
    end = times.read(asked["end"], "end") if "end" in asked else now
    if start >= end:
        raise exceptions.BadRequest(
            reason=f"the period ends at {times.iso(end)}, which is not after its start, "
            f"{times.iso(start)}; name start and end, or leave both out for this month"
        )
    return start, end
