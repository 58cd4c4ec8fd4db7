# SPDX-License-Identifier: Apache-2.0
"""Usage: the GPU-hours that projects used in a period, and what they cost."""

from __future__ import annotations

import datetime
from typing import Any

from gsaas import exceptions
from gsaas.api import rbac, times
from gsaas.api.request import ApiRequest, ApiResponse
from gsaas.db import usage as history
from gsaas.objects.prices import Prices
from gsaas.objects.usage import ProjectUsage


def show(request: ApiRequest) -> ApiResponse:
    """Show the usage of the caller's project in a period, or of every project if the caller may see it."""
    now = request.service.database.now()
    start, end = _period(request, now)
    own, prices = request.project_id, request.service.prices
    all_projects = request.allows(rbac.USAGE_SHOW_ALL_PROJECTS)
    with request.service.database.reading() as connection:
        used = history.by_project(
            *(connection, start, end, now, None if all_projects else own),
            by_model=bool(prices),
        )
    if not all_projects and not used:
        used = [ProjectUsage(own, 0, 0.0, 0.0)]
    shown = {
        "start": times.iso(start),
        "end": times.iso(end),
        **({"currency": prices.currency} if prices else {}),
        "projects": [_shown(project, prices) for project in used],
    }
    return ApiResponse(200, {"usage": shown})


def _shown(used: ProjectUsage, prices: Prices) -> dict[str, Any]:
    shown = {
        "project_id": used.project_id,
        "leases": used.leases,
        "gpu_hours": used.gpu_hours,
        "memory_mb_hours": used.memory_mb_hours,
    }
    if prices:
        shown["cost"] = str(prices.cost(used.hours_by_model))
        shown["unpriced_gpu_hours"] = prices.unpriced(used.hours_by_model)
    return shown


def _period(
    request: ApiRequest, now: datetime.datetime
) -> tuple[datetime.datetime, datetime.datetime]:
    """Return the start and end that the query asks for; their defaults are the start of this month and now."""
    query = request.query
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    start = times.parse(query["start"], "start") if "start" in query else month
    end = times.parse(query["end"], "end") if "end" in query else now
    if start >= end:
        raise exceptions.BadRequest(
            reason=f"the period ends at {times.said(end)}, which is not after its start, "
            f"{times.said(start)}; name start and end, or leave both out for this month"
        )
    return start, end
