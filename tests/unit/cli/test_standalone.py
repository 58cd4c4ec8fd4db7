# SPDX-License-Identifier: Apache-2.0
"""`gsaas-standalone --clean` ends the daemons of its own namespaces, whatever its configuration says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gsaas.cli import standalone
from gsaas.gpu_host.daemons import process_runner

OURS, THEIRS = f"ours{os.getpid()}-gpu1", f"ours{os.getpid()}-b-gpu1"
REAL = "[remoting]\ndriver = rcuda\n"


@pytest.fixture
def daemons() -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """A daemon in each of two namespaces, as `ps` and /proc show them."""
    found = {
        netns: subprocess.Popen(
            [f"gsaas-daemon {netns} GSaaS daemon gpu=GPU-1 port=20000 restarts=0", "600"],
            executable="/bin/sleep",
            start_new_session=True,
        )
        for netns in (OURS, THEIRS)
    }
    yield found
    for process in found.values():
        process.kill()
        process.wait()


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state directory that records one namespace."""
    monkeypatch.setattr(standalone, "_missing_capabilities", list)
    folder = tmp_path / "state"
    (folder / "namespaces").mkdir(parents=True)
    (folder / "namespaces" / OURS).touch()
    umask = os.umask(0o077)
    yield folder
    os.umask(umask)


def clean(state: Path, configuration: str = "") -> int:
    file = state.with_suffix(".conf")
    file.write_text(configuration)
    return standalone.main(["--clean", f"--state-dir={state}", f"--config-file={file}"])


@pytest.mark.parametrize("configuration", ["", REAL], ids=["default", "as it ran"])
def test_clean_ends_the_daemons_of_the_recorded_namespaces_and_of_no_other(
    daemons: dict[str, subprocess.Popen[bytes]], state: Path, configuration: str
) -> None:
    assert clean(state, configuration) == 0
    assert daemons[OURS].wait() == -9
    assert daemons[THEIRS].poll() is None
    assert not state.exists()


def test_clean_leaves_everything_if_a_daemon_cannot_be_ended(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(process_runner, "end_all", lambda _namespaces, _timeout: False)
    assert clean(state) == 1
    assert "a daemon does not end" in capsys.readouterr().err
    assert (state / "namespaces" / OURS).exists()


def test_clean_of_nothing_makes_nothing(state: Path) -> None:
    (state / "namespaces" / OURS).unlink()
    assert clean(state, REAL) == 0
    assert clean(state, REAL) == 0, "now there is no folder"
    assert not state.exists()
