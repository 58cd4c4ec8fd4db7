# SPDX-License-Identifier: Apache-2.0
"""The launcher is built as a program where its libraries are, and as a script elsewhere, with what would be missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

LAUNCHER = Path(__file__).resolve().parents[2] / "launcher"


def build(folder: Path, **environment: str) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Build the programs from a copy of the sources; return the process, and the folder with what it has built."""
    copy = folder / "launcher"
    shutil.copytree(LAUNCHER, copy, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    done = subprocess.run(
        [sys.executable, "setup.py", "build_scripts", "--build-dir", "built"],
        cwd=copy,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done, copy / "built"


def test_without_its_libraries_a_script_is_built_and_what_to_install_is_said(tmp_path: Path):
    done, built = build(tmp_path, PKG_CONFIG_LIBDIR=str(tmp_path))
    assert done.returncode == 0
    said = done.stdout + done.stderr
    assert "libevent" in said
    assert "apt-get install gcc libc6-dev pkg-config libevent-dev libjansson-dev" in said
    assert [path.name for path in built.iterdir()] == ["gsaas"]
    assert (built / "gsaas").read_text().startswith("#!python")


@pytest.mark.parametrize("missing", ["PKG_CONFIG", "CC"])
def test_without_a_tool_a_script_is_built_and_the_tool_is_named(tmp_path: Path, missing: str):
    done, built = build(tmp_path, **{missing: "/no/such/tool"})
    assert done.returncode == 0
    assert "/no/such/tool cannot be run: No such file or directory" in done.stdout + done.stderr
    assert (built / "gsaas").read_text().startswith("#!python")


def test_a_build_that_wants_the_program_fails_without_its_libraries(tmp_path: Path):
    done, built = build(tmp_path, PKG_CONFIG_LIBDIR=str(tmp_path), GSAAS_LAUNCHER="program")
    assert done.returncode != 0
    assert "libjansson-dev" in done.stderr
    assert not (built / "gsaas").exists()


def test_the_program_loads_the_parts_of_libevent_and_not_the_whole_as_well(tmp_path: Path):
    done, built = build(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    objects = [built / "gsaas-run.so", built / "gsaas-tls.so"]
    listing = subprocess.run(
        ["readelf", "--dynamic", *objects], check=True, capture_output=True, text=True
    ).stdout
    needed = {line.split("[")[1].rstrip("]") for line in listing.splitlines() if "(NEEDED)" in line}
    assert {name.split("-2.")[0] for name in needed if name.startswith("libevent")} == {
        *("libevent_core", "libevent_extra", "libevent_openssl")
    }
