"""Health checks by load balancers, without a token."""

from __future__ import annotations

import sqlalchemy
from oslo_db import exception as db_exception

from gsaas import exceptions
from gsaas.api.request import ApiRequest, ApiResponse


def show(request: ApiRequest) -> ApiResponse:
    """Check that this process can read the database; 503 if it cannot."""
    try:
        with request.service.database.read() as session:
            session.execute(sqlalchemy.text("SELECT 1 FROM leases WHERE 1 = 0"))
    except db_exception.DBError:
        raise exceptions.ServiceUnhealthy(reason="this process cannot read the database") from None
    return ApiResponse(200, {"status": "ok"})
