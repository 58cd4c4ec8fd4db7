# SPDX-License-Identifier: Apache-2.0
"""Each compute host's endpoint is known by its last report."""

from __future__ import annotations

import pytest

from gsaas import exceptions
from gsaas.db import endpoints, gpus
from gsaas.db.database import Database
from gsaas.db.models import EndpointRow
from tests.support import rows


def test_a_report_replaces_the_one_before(database: Database):
    with database.write() as session:
        endpoints.register(session, "cpu1", {"bindings": 1, "problems": ["no route"]})
        session.get_one(EndpointRow, "cpu1").seen_at = rows.second(0)
    with database.write() as session:
        endpoints.register(session, "cpu1", {"bindings": 2})
    with database.read() as session:
        endpoint = endpoints.get(session, "cpu1")
    assert endpoint.report == {"bindings": 2}
    assert endpoint.seen_at > rows.second(0)
    assert endpoint.host.name == "cpu1"


def test_a_host_may_have_both_agents(database: Database):
    with database.write() as session:
        endpoints.register(session, "both", {})
        gpus.register(session, "both", "192.0.2.7", [])
    with database.read() as session:
        assert endpoints.get(session, "both").host.gpu_address == "192.0.2.7"


def test_pages_of_endpoints_follow_the_names_of_their_hosts(database: Database):
    with database.write() as session:
        for name in ("cpu3", "cpu1", "cpu2"):
            endpoints.register(session, name, {})
    with database.read() as session:
        first = [endpoint.host_name for endpoint in endpoints.page(session, limit=2)]
        second = [e.host_name for e in endpoints.page(session, limit=2, marker=first[-1])]
    assert (first, second) == (["cpu1", "cpu2"], ["cpu3"])


def test_an_endpoint_that_is_not_there_is_named(database: Database):
    with (
        pytest.raises(exceptions.NotFound, match="there is no endpoint cpu9"),
        database.read() as session,
    ):
        endpoints.get(session, "cpu9")
