# SPDX-License-Identifier: Apache-2.0
"""The health check, by which load balancers decide whether they send requests to this process."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import gsaas.conf
from gsaas.api import health_backends
from gsaas.db import models
from tests.api.world import World, only_error


@pytest.fixture
def drained(tmp_path):
    """An API whose operator may drain it with a file, and that file."""
    switch = tmp_path / "healthcheck_disable"
    world = World.build(tmp_path, settings=f"[healthcheck]\ndisable_by_file_path = {switch}\n")
    yield world, switch
    world.database.close()


def test_a_file_takes_the_process_out_of_service_until_it_is_removed(drained):
    world, switch = drained
    assert world.call(None, "GET", "/healthcheck").status_code == 200
    switch.touch()
    response = world.call(None, "GET", "/healthcheck")
    (error,) = response.json["errors"]
    assert (response.status_code, error["code"]) == (503, "gsaas.disabled")
    assert "DISABLED BY FILE" in error["detail"]
    switch.unlink()
    response = world.call(None, "GET", "/healthcheck")
    assert (response.status_code, response.json) == (200, {"status": "ok"})


def test_a_process_that_is_drained_still_answers_requests(drained):
    world, switch = drained
    switch.touch()
    assert world.call("reader", "GET", "/v1/leases").status_code == 200


def test_a_backend_learns_the_port_that_was_asked(tmp_path):
    settings = (
        "[healthcheck]\nbackends = disable_by_files_ports\n"
        f"disable_by_file_paths = 80:{tmp_path}/one, 81:{tmp_path}/other\n"
    )
    world = World.build(tmp_path, settings=settings)
    (tmp_path / "other").touch()
    assert world.call(None, "GET", "/healthcheck").status_code == 200
    (tmp_path / "one").touch()
    assert world.call(None, "GET", "/healthcheck").status_code == 503
    world.database.close()


def test_without_a_configuration_the_file_is_beside_the_configuration():
    conf = gsaas.conf.load(files=[])
    (backend,) = health_backends.load(conf)
    assert type(backend).__name__ == "DisableByFileHealthcheck"
    assert conf.healthcheck.disable_by_file_path == "/etc/gsaas/healthcheck_disable"


def test_a_backend_that_is_not_installed_is_named(tmp_path):
    settings = tmp_path / "gsaas.conf"
    settings.write_text("[healthcheck]\nbackends = disable_by_flag\n")
    with pytest.raises(
        ValueError, match=r"\[healthcheck\]backends: not installed: disable_by_flag"
    ):
        health_backends.load(gsaas.conf.load(files=[str(settings)]))


@contextmanager
def no_room() -> Iterator[None]:
    """Let this process write no file beyond its first page."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_disk_that_keeps_nothing_is_unhealthy_and_claims_nothing(world):
    assert world.call(None, "GET", "/healthcheck").status_code == 200
    body = {"lease": {"cgpus": {"count": 1}, "server": None}}
    with no_room():
        answers = [world.call("member", "POST", "/v1/leases", body)]
    answers += [world.call("member", "POST", "/v1/leases", body) for _ in range(3)]
    assert [only_error(answer)["code"] for answer in answers] == ["gsaas.database.unreachable"] * 4
    assert only_error(world.call(None, "GET", "/healthcheck"))["status"] == 503
    with world.database.read() as session:
        assert sum(gpu.leases for gpu in session.query(models.GpuRow)) == 0
