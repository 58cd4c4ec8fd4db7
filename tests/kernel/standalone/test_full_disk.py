# SPDX-License-Identifier: Apache-2.0
"""A disk that is full under gsaas-standalone: requests and the health check say so, and nothing stays claimed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.kernel.standalone.cloud import Cloud
from tests.support.waiting import until

pytestmark = pytest.mark.kernel

BODY = {"lease": {"cgpus": {"count": 1, "mode": "shared", "memory_mb": 64}, "server": None}}


@pytest.fixture
def cloud(make_cloud) -> Iterator[Cloud]:
    """A running cloud whose state is on a small file system of its own."""
    cloud = make_cloud()
    cloud.state_dir.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs", cloud.state_dir], check=True
    )
    try:
        cloud.start()
        yield cloud
    finally:
        cloud.remove()
        subprocess.run(["umount", cloud.state_dir], check=True)


def test_a_full_disk_is_reported_and_claims_nothing_until_there_is_room(cloud: Cloud):
    assert cloud.call("GET", "/healthcheck")[0] == 200
    ballast = cloud.state_dir / "ballast"
    with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(4096))

    # What SQLite's log has room for already is still stored.
    def refused() -> bool:
        status, answer = cloud.call("POST", "/v1/leases", BODY)
        assert status in (201, 503, 409), answer
        if status == 503:
            (error,) = answer["errors"]
            assert error["code"] == "gsaas.database.unwritable"
            assert "is full: the operator of this service has to make room" in error["detail"]
        return status == 503

    until(refused, "the disk to be full for a launch")
    status, answer = cloud.call("GET", "/healthcheck")
    assert status == 503
    assert "is full" in answer["errors"][0]["detail"]
    status, listed = cloud.call("GET", "/v1/leases")
    assert status == 200

    ballast.unlink()
    assert cloud.call("GET", "/healthcheck")[0] == 200
    assert cloud.call("POST", "/v1/leases", BODY)[0] == 201
    assert len(cloud.call("GET", "/v1/leases")[1]["leases"]) == len(listed["leases"]) + 1
