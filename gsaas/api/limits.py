# SPDX-License-Identifier: Apache-2.0
"""Limits: the quota of a project, and how much of it is used."""

from __future__ import annotations

from gsaas.api.request import ApiRequest, ApiResponse
from gsaas.db import projects
from gsaas.limits import base
from gsaas.objects.placement import Placement


def show(request: ApiRequest) -> ApiResponse:
    """Show the quota of the caller's project, and how much of it is used."""
    limits = request.service.limits.of(request.project_id)
    with request.service.database.reading() as connection:
        used = projects.usage(connection, request.project_id)
    shown = {name: {"limit": limits[name], "used": used[name]} for name in base.UNITS}
    return ApiResponse(200, {"limits": shown})


def check(
    request: ApiRequest, quota: base.Amounts, placement: Placement, *, within: bool = False
) -> None:
    """Raise `QuotaExceeded` if *placement* does not fit into what is left of the project's *quota*.

    A placement *within* a reservation is part of what the project has reserved.

    The claim checks again within its transaction: other requests of the project may come in between.
    """
    if base.limited(quota):
        with request.service.database.reading() as connection:
            used = base.Usage(*projects.claimed_and_reserved(connection, request.project_id))
        asked = base.of_placement(placement)
        if within:
            base.check(quota, used.claimed, asked)
        else:
            base.check(quota, used.total, asked, used.reserved)
