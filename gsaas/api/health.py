# SPDX-License-Identifier: Apache-2.0
"""Health checks by load balancers, without a token."""

from __future__ import annotations

import sqlalchemy

from gsaas import exceptions
from gsaas.api.request import ApiRequest, ApiResponse
from gsaas.db import ready
from gsaas.db.storage import CannotStoreError


def show(request: ApiRequest) -> ApiResponse:
    """Check whether this process can answer requests; the status is 503 if it cannot.

    It can if no backend reports it as disabled, if it can read the database, and if that stores what is written.
    """
    for backend in request.service.health_backends:
        result = backend.healthcheck(request.connection.server_port)
        if not result.available:
            raise exceptions.ServiceDisabled(reason=result.reason)
    database = request.service.database
    try:
        with database.read() as session:
            session.execute(sqlalchemy.text("SELECT 1 FROM leases WHERE 1 = 0"))
    except CannotStoreError as error:
        raise exceptions.ServiceUnhealthy(reason=error.reason) from None
    except ready.ERRORS:
        raise exceptions.ServiceUnhealthy(reason="this process cannot read the database") from None
    try:
        database.check()
    except CannotStoreError as error:
        raise exceptions.ServiceUnhealthy(reason=error.reason) from None
    except ready.ERRORS:
        raise exceptions.ServiceUnhealthy(
            reason="the disk of the database does not keep what is written"
        ) from None
    return ApiResponse(200, {"status": "ok"})
