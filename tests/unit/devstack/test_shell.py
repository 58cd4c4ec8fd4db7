# SPDX-License-Identifier: Apache-2.0
"""shellcheck finds nothing in any shell script of the project."""

from __future__ import annotations

import subprocess

import pytest

from tests.unit.devstack.node import HERE, SOURCE

pytestmark = pytest.mark.slow

SCRIPTS = (
    *("dev", ".ci/run"),
    *(
        "devstack/override-defaults",
        "devstack/settings",
        "devstack/plugin.sh",
        "devstack/lib/gsaas",
        "devstack/lib/heat",
        "devstack/lib/horizon",
        "devstack/lib/tempest",
    ),
)


@pytest.mark.parametrize("script", [*SCRIPTS, str((HERE / "standins.sh").relative_to(SOURCE))])
def test_shellcheck_finds_nothing(script: str) -> None:
    checked = subprocess.run(
        ["shellcheck", "--external-sources", script],
        cwd=SOURCE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout) == (0, "")
