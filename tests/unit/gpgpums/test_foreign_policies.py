# SPDX-License-Identifier: Apache-2.0
"""A policy of another package is found once the package is installed, even beside broken ones."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (find_spec("pip") and find_spec("setuptools")), reason="needs pip and setuptools"
    ),
]

GUIDE = Path(__file__).parents[3] / "doc" / "policies.md"
BROKEN = """
gone = "newest_first_but_elsewhere:Policy"
nameless = "newest_first:Nameless"
"""

QUESTION = """
from gsaas.gpgpums import policies
from gsaas.gpgpums.pool import Pool
from gsaas.objects.request import Gpu, Request

old = Gpu("old", "a", 0, 1000, compute_capability=(7, 0))
new = Gpu("new", "b", 0, 1000, compute_capability=(9, 0))
print(*policies.names())
print(*Pool([old, new]).propose(Request(1), policies.load("newest-first")).memory_by_gpu())
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The package of the operators' guide, with two broken policies beside, built and installed."""
    guide = GUIDE.read_text(encoding="utf-8").partition("## Policies of your own")[2]
    project, module = (
        re.search(rf"```{language}\n(.*?)```", guide, re.DOTALL)[1]
        for language in ("toml", "python")
    )
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("target")
    named = 'newest-first = "newest_first:NewestFirst"'
    assert named in project
    (source / "pyproject.toml").write_text(project.replace(named, named + BROKEN))
    (source / "newest_first.py").write_text(module + "\n\nclass Nameless:\n    pass\n")
    install = ["install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [sys.executable, "-m", "pip", *install, "--target", str(target), str(source)],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return target


def test_a_policy_of_another_package_is_found_and_chooses(installed):
    answer = subprocess.run(
        [sys.executable, "-c", QUESTION],
        env={"PYTHONPATH": str(installed), "PATH": "/usr/bin"},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    names, chosen = answer.stdout.splitlines()
    assert chosen == "new"
    assert {"newest-first", "first-fit", "least-load-fit"} <= set(names.split())
    assert {"gone", "nameless"}.isdisjoint(names.split())
    reported = [line for line in answer.stderr.splitlines() if "is left out" in line]
    assert ["gone" in reported[0], "nameless" in reported[1]] == [True, True]
