"""Hosts come into being when their agents report, and operators take them out of service."""

from __future__ import annotations

import pytest

from gsaas import exceptions
from gsaas.db import endpoints, hosts
from gsaas.db.database import Database
from tests.support import rows


def test_a_host_tells_its_gpus_and_endpoint_after_the_session(database: Database):
    with database.write() as session:
        session.add_all([rows.host(), rows.gpu("GPU-b", device_index=1), rows.gpu("GPU-a")])
        endpoints.register(session, "gpu1", {"bindings": 3})
    with database.read() as session:
        host = hosts.get(session, "gpu1")
    assert [gpu.uuid for gpu in host.gpus] == ["GPU-a", "GPU-b"]
    assert host.endpoint.report == {"bindings": 3}


def test_a_compute_host_without_gpus_is_a_host_too(database: Database):
    with database.write() as session:
        endpoints.register(session, "cpu1", {})
    with database.read() as session:
        host = hosts.get(session, "cpu1")
    assert (host.gpu_address, host.gpus, host.monitor_seen_at) == (None, [], None)


def test_pages_of_hosts_follow_their_names(database: Database):
    with database.write() as session:
        session.add_all([rows.host(name) for name in ("gpu3", "gpu1", "gpu2")])
    with database.read() as session:
        first = [host.name for host in hosts.page(session, limit=2)]
        second = [host.name for host in hosts.page(session, limit=2, marker=first[-1])]
    assert (first, second) == (["gpu1", "gpu2"], ["gpu3"])


def test_disabling_a_host_says_why_and_makes_caches_of_its_gpus_stale(database: Database):
    with database.write() as session:
        session.add_all([rows.host("gpu1"), rows.host("gpu2")])
        session.add_all(
            [
                rows.gpu("GPU-a", generation=5),
                rows.gpu("GPU-b", device_index=1, generation=7),
                rows.gpu("GPU-c", host_name="gpu2", generation=9),
            ]
        )
    with database.write() as session:
        hosts.set_disabled(session, "gpu1", True, "a fan is to be replaced")
    with database.read() as session:
        first, second = hosts.page(session, limit=10)
    assert (first.disabled, first.disabled_reason) == (True, "a fan is to be replaced")
    assert [gpu.generation for gpu in first.gpus] == [6, 8]
    assert (second.disabled, [gpu.generation for gpu in second.gpus]) == (False, [9])
    with database.write() as session:
        host = hosts.set_disabled(session, "gpu1", False)
    assert (host.disabled, host.disabled_reason) == (False, None)
    assert [gpu.generation for gpu in host.gpus] == [7, 9]


def test_a_host_that_is_not_there_is_named(database: Database):
    with database.write() as session:
        with pytest.raises(exceptions.NotFound, match="there is no host gpu9"):
            hosts.get(session, "gpu9")
        with pytest.raises(exceptions.NotFound, match="there is no host gpu9"):
            hosts.set_disabled(session, "gpu9", True)
