# SPDX-License-Identifier: Apache-2.0
"""A disk that fails under gsaas-standalone: the process ends, and keeps no GPU for clients that were told of an error.

fdatasync(2) really fails in the process, by a library that is loaded before the C library.
"""

from __future__ import annotations

import http.client
from pathlib import Path

import pytest

from tests.kernel.standalone.cloud import Cloud
from tests.support.disk import Disk
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.kernel


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "disk")


@pytest.fixture
def cloud(make_cloud, disk: Disk) -> Cloud:
    cloud = make_cloud()
    cloud.environment = disk.environment
    cloud.start()
    return cloud


def test_a_disk_that_fails_ends_the_process_and_takes_no_gpus_with_it(cloud: Cloud, disk: Disk):
    body = {"lease": {"cgpus": {"count": 1}, "server": None}}
    assert cloud.call("POST", "/v1/leases", body)[0] == 201
    disk.fail()
    answers = []
    for _ in range(5):
        try:
            answers.append(cloud.call("POST", "/v1/leases", body)[0])
        except (OSError, http.client.HTTPException):
            answers.append("no answer")
    # If what the process writes by itself meets the disk first, it may end before it answers anybody.
    assert set(answers) <= {503, "no answer"}
    _, error = cloud.process.communicate(timeout=PATIENCE)
    assert cloud.process.returncode == 1
    assert error.startswith(f"gsaas-standalone: {cloud.state_dir} is on a disk that cannot be")
    disk.mend()
    cloud.process = None
    cloud.start()
    status, listed = cloud.call("GET", "/v1/leases")
    assert status == 200
    # That of the client with an answer, and perhaps the one that was being written when the disk failed.
    assert len(listed["leases"]) <= 2
    assert cloud.call("POST", "/v1/leases", body)[0] == 201
