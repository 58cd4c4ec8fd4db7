# SPDX-License-Identifier: Apache-2.0
"""Autogroups are disabled for a run, and enabled again however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run import autogroup
from tests.support.waiting import until

RUN = """
import sys
from pathlib import Path
from tests.run import autogroup
with autogroup.disabled(Path(sys.argv[1])):
    print("runs", flush=True)
    sys.stdin.read()
"""


def test_they_are_enabled_again_after_a_run(tmp_path: Path):
    setting = tmp_path / "setting"
    setting.write_text("1\n")
    with autogroup.disabled(setting):
        assert setting.read_text() == "0"
    assert setting.read_text() == "1\n"


def test_they_are_enabled_again_after_a_run_that_was_killed(tmp_path: Path):
    setting = tmp_path / "setting"
    setting.write_text("1\n")
    with subprocess.Popen(
        (sys.executable, "-c", RUN, setting),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "runs\n"
        assert setting.read_text() == "0"
        run.send_signal(signal.SIGKILL)
    until(lambda: setting.read_text() == "1\n", "them to be enabled")


@pytest.mark.parametrize("found", ["0\n", None])
def test_where_there_are_none_nothing_changes(tmp_path: Path, found: str | None):
    setting = tmp_path / "setting"
    if found is not None:
        setting.write_text(found)
    with autogroup.disabled(setting):
        pass
    assert (setting.read_text() if setting.exists() else None) == found
