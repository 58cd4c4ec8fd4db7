# SPDX-License-Identifier: Apache-2.0
"""The health check, by which load balancers decide whether they send requests to this process."""

from __future__ import annotations

import base64
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy

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


BODY = {
    "lease": {
        "cgpus": {"count": 1},
        "server": {"user_data": base64.b64encode(bytes(40000)).decode()},
    }
}
"""Its row needs pages of its own."""


@contextmanager
def pragma(world: World, setting: str) -> Iterator[None]:
    """Have every connection of SQLite begin with a PRAGMA."""

    def set_up(connection, _record):
        connection.execute(f"PRAGMA {setting}")

    engine = world.database.engine
    sqlalchemy.event.listen(engine, "connect", set_up)
    engine.dispose()
    try:
        yield
    finally:
        sqlalchemy.event.remove(engine, "connect", set_up)
        engine.dispose()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("max_page_count = 1", "is full: the operator of this service has to make room"),
        (
            "query_only = 1",
            "cannot be written, only read: the operator of this service has to look",
        ),
    ],
)
def test_a_database_that_cannot_store_says_why_until_it_can_again(world, setting, said):
    with pragma(world, setting):
        error = only_error(world.call("member", "POST", "/v1/leases", BODY))
        assert (error["status"], error["code"]) == (503, "gsaas.database.unwritable")
        assert said in error["detail"]
        for _ in range(2):
            unhealthy = only_error(world.call(None, "GET", "/healthcheck"))
            assert (unhealthy["status"], unhealthy["code"]) == (503, "gsaas.unhealthy")
            assert said in unhealthy["detail"]
        assert world.call("member", "GET", "/v1/leases").json["leases"] == []
    assert world.call(None, "GET", "/healthcheck").status_code == 200
    assert world.call("member", "POST", "/v1/leases", BODY).status_code == 202


def test_a_change_that_writes_nothing_does_not_make_it_healthy(world):
    with pragma(world, "max_page_count = 1"):
        world.call("member", "POST", "/v1/leases", BODY)
        with world.database.writing():
            pass
        assert world.call(None, "GET", "/healthcheck").status_code == 503


def test_a_damaged_file_says_that_a_backup_is_to_be_restored(world, tmp_path):
    engine = world.database.engine
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    engine.dispose()
    file = tmp_path / "gsaas.db"
    with file.open("r+b") as pages:
        pages.seek(4096)
        pages.write(b"\xa5" * (file.stat().st_size - 4096))
    for path, code in (
        ("/v1/leases", "gsaas.database.unwritable"),
        ("/healthcheck", "gsaas.unhealthy"),
    ):
        error = only_error(world.call("member", "GET", path))
        assert (error["status"], error["code"]) == (503, code)
        assert "is damaged: the operator of this service has to restore a backup" in error["detail"]
