# SPDX-License-Identifier: Apache-2.0
"""pip finds releases for all distributions, with all of their extras, under what OpenStack constrains.

Under the constraints of 2026.1, `./dev test constrained` really installs them, and runs tests with that.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.support import constraints

DISTRIBUTIONS = (
    ".[api,engine,rodvr,monitor,standalone,mysql,postgresql]",
    "./client[osc]",
    "./launcher",
)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the distributions are made of: pip writes into the folders of its sources."""
    copy = tmp_path_factory.mktemp("sources")
    for folder in constraints.FOLDERS:
        target = copy / folder.relative_to(constraints.REPOSITORY)
        target.mkdir(exist_ok=True)
        for file in folder.iterdir():
            if file.is_file():
                shutil.copy(file, target)
    for package in ("gsaas", "client/gsaasclient"):
        shutil.copytree(constraints.REPOSITORY / package, copy / package)
    return copy


def resolve(sources: Path, constrained: Path) -> subprocess.CompletedProcess[str]:
    """Have pip choose the releases that it would install, under the constraints of this file; it installs nothing."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "-q"]
    command += ["--disable-pip-version-check", "--no-build-isolation", "--report", "-"]
    command += ["-c", str(constrained), *DISTRIBUTIONS]
    return subprocess.run(command, cwd=sources, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("release", ["2025.2", "master"])
def test_all_distributions_can_be_installed_under_openstacks_constraints(
    sources: Path, release: str
) -> None:
    path = constraints.UPPER_CONSTRAINTS / f"upper-constraints-{release}.txt"
    found = resolve(sources, path)
    assert found.returncode == 0, found.stderr
    parts = [part["metadata"] for part in json.loads(found.stdout)["install"]]
    chosen = {canonicalize_name(part["name"]): part["version"] for part in parts}
    constrained = constraints.read(path)
    assert {"gsaas", "python-gsaasclient", "gsaas-launcher", "pyroute2"} <= chosen.keys()
    assert {name: constrained.get(name, version) for name, version in chosen.items()} == chosen


def test_a_constraint_that_no_release_satisfies_is_an_error(sources: Path, tmp_path: Path) -> None:
    path = constraints.UPPER_CONSTRAINTS / "upper-constraints-2026.1.txt"
    contradicting = tmp_path / "constraints.txt"
    contradicting.write_text(path.read_text().replace("pyroute2===0.8.1", "pyroute2===0.7.12"))
    found = resolve(sources, contradicting)
    assert found.returncode == 1
    assert "pyroute2" in found.stderr
    assert "conflict" in found.stderr
