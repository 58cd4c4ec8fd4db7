# SPDX-License-Identifier: Apache-2.0
"""Our block in `/etc/environment`, a file that has other owners."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gsaas.cloudinit.boot import pam_script
from tests.support import pam

OLD = {
    "RCUDA_DEVICE_COUNT": "2",
    "RCUDA_DEVICE_0": "169.254.71.1:0",
    "RCUDA_DEVICE_1": "169.254.71.2:0",
}
NEW = {"RCUDA_DEVICE_COUNT": "1", "RCUDA_DEVICE_0": "169.254.71.1:0"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "environment"


def boot(path: Path, env: dict[str, str]) -> None:
    subprocess.run(["/bin/sh", "-eu", "-c", pam_script(env, str(path))], check=True)


def test_a_missing_file_is_made_readable_for_all(path: Path):
    boot(path, NEW)

    assert pam.environment(path) == NEW
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("ending", ["\n", ""])
def test_what_was_there_stays_even_without_a_last_newline(path: Path, ending: str):
    path.write_text('PATH="/usr/bin"\n# a comment\n\nLANG=C' + ending)
    path.chmod(0o600)

    boot(path, NEW)

    assert path.read_text().startswith('PATH="/usr/bin"\n# a comment\n\nLANG=C\n')
    assert pam.environment(path) == {"PATH": "/usr/bin", "LANG": "C", **NEW}
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["environment"]


def test_booting_again_changes_nothing(path: Path):
    path.write_text("LANG=C\nLD_LIBRARY_PATH=/usr/local/cuda/lib64\n")
    env = {**NEW, "LD_LIBRARY_PATH": "/opt/rCUDA/lib"}
    boot(path, env)
    first, inode = path.read_text(), path.stat().st_ino

    boot(path, env)

    assert (path.read_text(), path.stat().st_ino) == (first, inode)


def test_a_former_lease_leaves_nothing_behind(path: Path):
    path.write_text("BEFORE=1\n")
    boot(path, OLD)
    with path.open("a") as file:
        file.write("AFTER=1\n")

    boot(path, NEW)

    assert pam.environment(path) == {"BEFORE": "1", "AFTER": "1", **NEW}


@pytest.mark.parametrize(
    "line",
    [
        "LD_LIBRARY_PATH=/cuda/lib64",
        'LD_LIBRARY_PATH="/cuda/lib64"',
        "LD_LIBRARY_PATH='/cuda/lib64'",
        "export LD_LIBRARY_PATH=/cuda/lib64",
    ],
)
def test_the_images_own_libraries_come_after_the_middlewares(path: Path, line: str):
    path.write_text(line + "\n")

    boot(path, {"LD_LIBRARY_PATH": "/opt/rCUDA/lib"})

    assert pam.environment(path) == {"LD_LIBRARY_PATH": "/opt/rCUDA/lib:/cuda/lib64"}


def test_a_block_that_lost_its_last_line_costs_nobody_a_line(path: Path):
    boot(path, OLD)
    path.write_text(path.read_text().replace("# end gsaas\n", "") + "MINE=1\n")

    boot(path, NEW)
    boot(path, NEW)

    assert pam.environment(path) == {**OLD, "MINE": "1", **NEW}
