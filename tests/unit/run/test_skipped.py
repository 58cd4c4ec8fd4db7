# SPDX-License-Identifier: Apache-2.0
"""Tests that were all skipped fail, and say why they were skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[3]
CONFTEST = "from tests.conftest import pytest_sessionfinish\n"
SKIPPED = """
import pytest

def test_with_slurm():
    pytest.skip("there is no slurmd")

@pytest.mark.skip(reason="there is no munged")
def test_with_munge():
    pass
"""
PASSED = "def test_without():\n    pass\n"


def run(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_some.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("options", [(), ("-p", "xdist.plugin", "--numprocesses=1")])
def test_tests_that_were_all_skipped_fail_with_their_reasons(
    tmp_path: Path, options: tuple[str, ...]
):
    done = run(tmp_path, SKIPPED, *options)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "all tests were skipped, which is a failure" in done.stdout
    assert "there is no slurmd" in done.stdout
    assert "there is no munged" in done.stdout


def test_tests_pass_of_which_some_were_skipped(tmp_path: Path):
    assert run(tmp_path, SKIPPED + PASSED).returncode == 0


def test_that_no_test_was_chosen_is_not_the_same_as_skipped(tmp_path: Path):
    done = run(tmp_path, SKIPPED, "-k", "nothing_so_called")
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "all tests were skipped" not in done.stdout
