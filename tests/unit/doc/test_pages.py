# SPDX-License-Identifier: Apache-2.0
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


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note.stem)
def test_a_note_says_something_in_sections_that_reno_shows(note: Path) -> None:
    sections = yaml.safe_load(note.read_text())
    assert sections
    shown = {"prelude", "features", "issues", "upgrade", "deprecations", "security", "fixes"}
    assert set(sections) <= shown | {"critical", "other"}
    assert all(sections.values())


Make = Callable[[Path, Path, str], Path]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return the function of doc/ext that makes a repository for reno to read."""
    monkeypatch.syspath_prepend(DOC / "ext")
    found: Make = importlib.import_module("release_notes").make_repository
    return found


def reno(command: str, folder: Path) -> str:
    """Return what a command of reno prints in *folder*."""
    words = [RENO, "-q", command, "."]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout


def commit(folder: Path, note: str, tag: str | None = None) -> None:
    """Commit a release note in the clone *folder*, which gets the tag."""
    path = folder / f"releasenotes/notes/{note}-{abs(hash(note)):016x}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"fixes:\n  - {note}\n")
    settings = ("-c", "user.name=a", "-c", "user.email=a@b")
    git("add", ".", cwd=folder)
    git(*settings, "commit", "-q", "-m", note, cwd=folder)
    if tag:
        git(*settings, "tag", "-a", "-m", tag, tag, cwd=folder)


@pytest.mark.slow
def test_reno_finds_nothing_wrong_with_the_notes(tmp_path: Path, make: Make) -> None:
    reno("lint", make(ROOT, tmp_path / "made", "1.2.3"))


@pytest.mark.slow
def test_a_shallow_clone_has_every_note_in_the_release_of_setup_cfg(
    tmp_path: Path, make: Make
) -> None:
    clone = tmp_path / "clone"
    git("clone", "-q", "--depth=1", "--no-tags", ROOT.as_uri(), str(clone), cwd=tmp_path)
    assert git("rev-list", "--count", "HEAD", cwd=clone).strip() == "1"
    text = reno("report", make(clone, tmp_path / "made", "1.2.3"))
    notes = [note.name for note in (clone / "releasenotes/notes").glob("*.yaml")]
    assert notes
    assert not {note for note in notes if note not in text}
    assert re.findall(r"^\d+\.\d.*$", text, re.MULTILINE) == ["1.2.3"]


@pytest.mark.slow
def test_an_unpacked_archive_has_every_note(tmp_path: Path, make: Make) -> None:
    shutil.copytree(ROOT / "releasenotes", tmp_path / "archive/releasenotes")
    text = reno("report", make(tmp_path / "archive", tmp_path / "made", "1.2.3"))
    assert not {note.name for note in NOTES if note.name not in text}


@pytest.mark.slow
def test_a_note_belongs_to_the_first_tag_that_has_it(tmp_path: Path, make: Make) -> None:
    clone = tmp_path / "clone"
    clone.mkdir()
    git("init", "-q", cwd=clone)
    commit(clone, "first", "1.0.0")
    commit(clone, "second", "1.10.0")
    commit(clone, "third")
    text = reno("report", make(clone, tmp_path / "made", "1.10.0"))
    order = re.findall(r"^(\d+\.\d[-.\d]*|- \w+)$", text, re.MULTILINE)
    assert order == ["1.10.0-1", "- third", "1.10.0", "- second", "1.0.0", "- first"]
    text = reno("report", make(clone, tmp_path / "again", "2.0.0"))
    assert re.findall(r"^\d+\.\d.*$", text, re.MULTILINE) == ["2.0.0", "1.10.0", "1.0.0"]
