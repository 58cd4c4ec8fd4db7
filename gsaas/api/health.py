"""Is this API process able to work? For load balancers, which have no token."""

from __future__ import annotations

import sqlalchemy
from oslo_db import exception as db_exception

from gsaas import exceptions
from gsaas.api.service import Call, Reply


def show(call: Call) -> Reply:
    """Answer 200 if the database can be read; raises `ServiceUnhealthy`."""
    try:
        with call.service.database.read() as session:
            session.execute(sqlalchemy.text("SELECT 1 FROM leases WHERE 1 = 0"))
    except db_exception.DBError:
        raise exceptions.ServiceUnhealthy(reason="the database cannot be read") from None
    return Reply(200, {"status": "ok"})
