"""Every shell script of the project is one that shellcheck has nothing to say about."""

from __future__ import annotations

import subprocess

import pytest

from tests.unit.devstack.node import HERE, SOURCE

SCRIPTS = ("dev", ".ci/run", "devstack/settings", "devstack/plugin.sh", "devstack/lib/gsaas")


@pytest.mark.parametrize("script", [*SCRIPTS, str((HERE / "standins.sh").relative_to(SOURCE))])
def test_shellcheck_has_nothing_to_say(script: str) -> None:
    said = subprocess.run(
        ["shellcheck", "--external-sources", script],
        cwd=SOURCE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (said.returncode, said.stdout) == (0, "")
