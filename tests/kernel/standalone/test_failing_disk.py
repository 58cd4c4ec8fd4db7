# SPDX-License-Identifier: Apache-2.0
"""A disk that fails under gsaas-standalone: the process ends, and keeps no GPU for clients that were told of an error.

fdatasync(2) really fails in the process, for Python and for SQLite, by a library that is loaded before the C library.
"""

from __future__ import annotations

import http.client
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kernel.standalone.cloud import Cloud

pytestmark = pytest.mark.kernel

FAILING = """
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int fdatasync(int descriptor)
{
    const char *flag = getenv("FAILING_DISK");
    if (flag && access(flag, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, descriptor);
}
"""


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """The file whose presence makes the disk fail."""
    return tmp_path / "broken"


@pytest.fixture
def cloud(make_cloud, tmp_path: Path, broken: Path) -> Cloud:
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    (tmp_path / "failing.c").write_text(FAILING)
    library = tmp_path / "failing.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", library, tmp_path / "failing.c"], check=True
    )
    cloud = make_cloud()
    cloud.environment = {"LD_PRELOAD": str(library), "FAILING_DISK": str(broken)}
    cloud.start()
    return cloud


def test_a_disk_that_fails_ends_the_process_and_takes_no_gpus_with_it(cloud: Cloud, broken: Path):
    body = {"lease": {"cgpus": {"count": 1}, "server": None}}
    assert cloud.call("POST", "/v1/leases", body)[0] == 201
    broken.touch()
    answers = []
    for _ in range(5):
        try:
            answers.append(cloud.call("POST", "/v1/leases", body)[0])
        except (OSError, http.client.HTTPException):
            answers.append("no answer")
    # If what the process writes by itself meets the disk first, it may end before it answers anybody.
    assert set(answers) <= {503, "no answer"}
    _, error = cloud.process.communicate(timeout=60)
    assert cloud.process.returncode == 1
    assert error.startswith(f"gsaas-standalone: {cloud.state_dir} is on a disk that cannot be")
    broken.unlink()
    cloud.process = None
    cloud.start()
    status, listed = cloud.call("GET", "/v1/leases")
    assert status == 200
    # That of the client with an answer, and perhaps the one that was being written when the disk failed.
    assert len(listed["leases"]) <= 2
    assert cloud.call("POST", "/v1/leases", body)[0] == 201
