# SPDX-License-Identifier: Apache-2.0
"""Tests that are repeated: which of them failed how often, also under load, which ends with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run import repeat
from tests.support.waiting import until

pytestmark = pytest.mark.slow

EVERY_SECOND_TIME = """
from pathlib import Path

def test_good():
    pass

def test_now_and_then():
    turns = Path(__file__).with_name("turns")
    turn = len(turns.read_text()) if turns.exists() else 0
    turns.write_text("x" * (turn + 1))
    assert turn % 2
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take seconds to import
    return tmp_path


def test_what_fails_now_and_then_is_named_with_how_often(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    (folder / "test_some.py").write_text(EVERY_SECOND_TIME)
    assert repeat.main(["--repeat=3", "-p", "no:cacheprovider", "test_some.py"]) == 1
    assert "failed 2 of 3 times: test_some.test_now_and_then\n" in capsys.readouterr().out
    assert repeat.main(["--repeat=2", "test_some.py", "-k", "good"]) == 0


def test_tests_that_cannot_be_run_are_a_failure(capsys: pytest.CaptureFixture[str]):
    assert repeat.main(["--repeat=1", "no_such_file.py"]) == 1
    assert "failed 1 of 1 times: pytest itself, with status 4\n" in capsys.readouterr().out


def children() -> list[int]:
    tasks = Path("/proc/self/task").glob("*/children")
    return [int(pid) for task in tasks for pid in task.read_text().split()]


def test_a_load_lasts_as_long_as_what_it_is_for(folder: Path):
    before = children()
    repeat.FOLDER.mkdir(parents=True)
    with pytest.raises(RuntimeError), repeat.load():
        assert len(children()) > len(before)
        (written,) = repeat.FOLDER.iterdir()
        until(lambda: written.stat().st_size == 2**22, "something to be written")
        raise RuntimeError
    assert children() == before
    assert list(repeat.FOLDER.iterdir()) == []
