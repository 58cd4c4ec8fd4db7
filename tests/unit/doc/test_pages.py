"""Every page of doc/ has its place on the site, and the release notes are complete however the clone was made."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
DOC = ROOT / "doc"
NOTES = sorted((ROOT / "releasenotes/notes").glob("*.yaml"))
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.MULTILINE | re.DOTALL)
RENO = Path(sys.executable).with_name("reno")


def git(*arguments: str, cwd: Path = ROOT) -> str:
    """Return what git prints."""
    done = subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout


def test_every_page_is_listed_once_in_the_index() -> None:
    """Sphinx warns of a page that is in no list, after half a minute; this says at once where to add it."""
    listed = [
        line
        for block in TOCTREE.findall((DOC / "index.md").read_text())
        for line in block.splitlines()
        if line and not line.startswith(":")
    ]
    pages = {path.stem for path in DOC.iterdir() if path.suffix in (".md", ".rst")}
    assert sorted(listed) == sorted(pages - {"index"})


def test_release_notes_are_written_as_reno_wants_them() -> None:
    done = subprocess.run([RENO, "-q", "lint", "."], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note.stem)
def test_a_note_says_something_in_sections_that_reno_shows(note: Path) -> None:
    sections = yaml.safe_load(note.read_text())
    assert sections
    shown = {"prelude", "features", "issues", "upgrade", "deprecations", "security", "fixes"}
    assert set(sections) <= shown | {"critical", "other"}
    assert all(sections.values())


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, Path, str], Path]:
    """Return the function of doc/ext that makes a repository for reno to read."""
    monkeypatch.syspath_prepend(DOC / "ext")
    found: Callable[[Path, Path, str], Path] = importlib.import_module("release_notes").repository
    return found


def report(folder: Path) -> str:
    """Return the release notes that reno finds in *folder*."""
    command = [RENO, "-q", "report", "."]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_a_shallow_clone_has_every_note_in_the_release_of_setup_cfg(
    tmp_path: Path, repository: Callable[[Path, Path, str], Path]
) -> None:
    clone = tmp_path / "clone"
    git("clone", "-q", "--depth=1", "--no-tags", ROOT.as_uri(), str(clone), cwd=tmp_path)
    assert git("rev-list", "--count", "HEAD", cwd=clone).strip() == "1"
    text = report(repository(clone, tmp_path / "made", "1.2.3"))
    notes = [note.name for note in (clone / "releasenotes/notes").glob("*.yaml")]
    assert notes
    assert not {note for note in notes if note not in text}
    assert "\n1.2.3\n" in text


def test_an_unpacked_archive_has_every_note(
    tmp_path: Path, repository: Callable[[Path, Path, str], Path]
) -> None:
    shutil.copytree(ROOT / "releasenotes", tmp_path / "archive/releasenotes")
    text = report(repository(tmp_path / "archive", tmp_path / "made", "1.2.3"))
    assert not {note.name for note in NOTES if note.name not in text}


def test_a_clone_with_history_and_tags_is_read_as_it_is(
    tmp_path: Path, repository: Callable[[Path, Path, str], Path]
) -> None:
    shutil.copytree(ROOT / "releasenotes", tmp_path / "archive/releasenotes")
    clone = repository(tmp_path / "archive", tmp_path / "clone", "1.0.0")
    assert repository(clone, tmp_path / "made", "1.2.3") == clone
