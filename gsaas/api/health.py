# SPDX-License-Identifier: Apache-2.0
"""Health checks by load balancers, without a token."""

from __future__ import annotations

import sqlalchemy
from oslo_db import exception as db_exception

from gsaas import exceptions
from gsaas.api.request import ApiRequest, ApiResponse


def show(request: ApiRequest) -> ApiResponse:
    """Check whether this process can answer requests; the status is 503 if it cannot.

    It can if no backend reports it as disabled, if it can read the database, and if that keeps what is written.
    """
    for backend in request.service.health_backends:
        result = backend.healthcheck(request.connection.server_port)
        if not result.available:
            raise exceptions.ServiceDisabled(reason=result.reason)
    try:
        with request.service.database.read() as session:
            session.execute(sqlalchemy.text("SELECT 1 FROM leases WHERE 1 = 0"))
    except db_exception.DBError:
        raise exceptions.ServiceUnhealthy(reason="this process cannot read the database") from None
    try:
        request.service.database.check()
    except db_exception.DBError:
        raise exceptions.ServiceUnhealthy(
            reason="the disk of the database does not keep what is written"
        ) from None
    return ApiResponse(200, {"status": "ok"})
