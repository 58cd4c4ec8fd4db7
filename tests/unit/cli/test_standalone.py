# SPDX-License-Identifier: Apache-2.0
"""`gsaas-standalone --clean` ends the daemons of its own namespaces, whatever its configuration says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gsaas.cli import standalone
from gsaas.gpu_host.daemons import systemd, unit
from gsaas.gpu_host.daemons.systemd import Systemd, SystemdRefused, SystemdUnavailable
from gsaas.gpu_host.daemons.unit import UnitState

OURS, THEIRS = "mend-gpu1", "mend-b-gpu1"
REAL = "[remoting]\ndriver = rcuda\n"


class OneSystemd(Systemd):
    """Has one unit in each namespace, which ends at once."""

    def __init__(self) -> None:
        super().__init__()
        self.names = {unit.name("20000", netns) for netns in (OURS, THEIRS)}
        self.error: Exception | None = None
        self.refusal: Exception | None = None

    def units(self, pattern: str) -> list[UnitState]:
        if self.error is not None:
            raise self.error
        return [UnitState(name, "", "active") for name in sorted(self.names)]

    def stop(self, name: str) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.names.remove(name)


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> OneSystemd:
    found = OneSystemd()
    monkeypatch.setattr(systemd, "Systemd", lambda: found)
    return found


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
    running: OneSystemd, state: Path, configuration: str
) -> None:
    assert clean(state, configuration) == 0
    assert running.names == {unit.name("20000", THEIRS)}
    assert not state.exists()


def test_clean_without_systemd_removes_a_simulation(running: OneSystemd, state: Path) -> None:
    running.error = SystemdUnavailable("there is none")
    assert clean(state) == 0
    assert not state.exists()


def test_clean_without_an_answer_of_systemd_leaves_everything_if_its_daemons_are_units(
    running: OneSystemd, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running.error = SystemdUnavailable("it does not answer")
    assert clean(state, REAL) == 1
    assert "the daemons cannot be ended: it does not answer" in capsys.readouterr().err
    assert (state / "namespaces" / OURS).exists()


def test_clean_leaves_everything_if_a_daemon_that_it_found_cannot_be_ended(
    running: OneSystemd, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running.refusal = SystemdRefused("it is not allowed", "x")
    assert clean(state) == 1
    assert "the daemons cannot be ended: it is not allowed" in capsys.readouterr().err
    assert (state / "namespaces" / OURS).exists()


def test_clean_of_nothing_asks_nobody_and_makes_nothing(running: OneSystemd, state: Path) -> None:
    running.error = AssertionError("it was asked")
    (state / "namespaces" / OURS).unlink()
    assert clean(state, REAL) == 0
    assert clean(state, REAL) == 0, "now there is no folder"
    assert not state.exists()
