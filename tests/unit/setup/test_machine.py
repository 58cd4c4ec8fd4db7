# SPDX-License-Identifier: Apache-2.0
"""Whether a unit runs with the files as they are; a script answers for systemd, which runs where no test does."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gsaas.setup import machine
from gsaas.setup.machine import File, State, Unit

SYSTEMCTL = """\
#!/bin/sh
[ "$1" != show ] || echo {started}
"""
"""Every unit is enabled, and has been active since then."""


@pytest.mark.parametrize(
    ("written", "file", "found"),
    [
        (-60, State.RIGHT, State.RIGHT),
        (-60, State.DIFFERENT, State.DIFFERENT),
        (60, State.RIGHT, State.DIFFERENT),
    ],
    ids=["before", "not-yet", "by-this-run-or-one-that-left-the-unit"],
)
def test_a_unit_is_started_again_if_a_file_that_it_reads_was_written_after_its_start(
    written: float, file: State, found: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    settings = tmp_path / "gsaas.conf"
    settings.touch()
    monotonic, now = time.monotonic(), time.time()
    hour_ago = monotonic - min(3600, monotonic / 2)
    when = now - (monotonic - hour_ago) + written
    os.utime(settings, (when, when))
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(SYSTEMCTL.format(started=round(hour_ago * 1e6)))
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(machine, "BOOTED", tmp_path)
    monkeypatch.setattr(File, "state", lambda _: file)
    assert Unit("gsaas-api", (File(str(settings), ""),)).state() is found
