# SPDX-License-Identifier: Apache-2.0
"""The directive `release-notes` of reno, for any clone.

reno finds the release of a note in the history of git. It cannot read a shallow clone nor some merges, and without tags
it calls the release 0.0.0. So it gets a repository that is made for it, with one commit for each release. The tags of
the clone, as many as it has, say what was in a release; all other notes belong to the release that setup.cfg names, or
to none yet if that one has a tag.

`python doc/ext/release_notes.py FOLDER` makes this repository in FOLDER, for the other commands of reno.
"""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from reno.sphinxext import ReleaseNotesDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "releasenotes"
RELEASE = re.compile(r"\d+(\.\d+)+")
SETTINGS = (
    "user.name=GSaaS",
    "user.email=gsaas@localhost",
    "commit.gpgsign=false",
    "tag.gpgsign=false",
)


class ReleaseNotes(ReleaseNotesDirective):
    """Shows the notes of every release."""

    def run(self) -> list[object]:
        """Return the nodes of the report."""
        env = self.state.document.settings.env
        target = Path(env.app.doctreedir).with_name("release-notes")
        self.options["reporoot"] = str(make_repository(ROOT, target, env.config.release))
        for note in sorted((ROOT / FOLDER).rglob("*.yaml")):
            env.note_dependency(str(note))
        return super().run()


def make_repository(root: Path, target: Path, release: str) -> Path:
    """Make a repository in *target* of the notes of *root*, whose setup.cfg names *release*; return *target*."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    _git(target, "init", "-q")
    tags = [tag for tag in _tags(root) if RELEASE.fullmatch(tag)]
    for tag in tags:
        archive = subprocess.run(
            ["git", "-C", str(root), "archive", tag, FOLDER], capture_output=True, check=False
        )
        if archive.returncode == 0:  # a release before the first note has no such folder
            shutil.rmtree(target / FOLDER, ignore_errors=True)
            subprocess.run(["tar", "-x"], cwd=target, input=archive.stdout, check=True)
            _commit(target, tag)
            _git(target, "tag", "-a", "-m", tag, tag)
    shutil.rmtree(target / FOLDER, ignore_errors=True)
    shutil.copytree(root / FOLDER, target / FOLDER)
    _commit(target, release)
    if release not in tags:
        _git(target, "tag", "-a", "-m", release, release)
    return target


def _tags(root: Path) -> list[str]:
    """Return the tags of *root*, oldest version first; none if it is no clone."""
    command = ["git", "-C", str(root), "tag", "--sort=version:refname"]
    if not (root / ".git").exists():
        return []
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def _commit(target: Path, message: str) -> None:
    _git(target, "add", "--all")
    _git(target, "commit", "-q", "--allow-empty", "-m", message)


def _git(target: Path, *arguments: str) -> None:
    settings = [word for setting in SETTINGS for word in ("-c", setting)]
    subprocess.run(["git", *settings, *arguments], cwd=target, check=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("release-notes", ReleaseNotes)
    return {"parallel_read_safe": False}


if __name__ == "__main__":
    parser = configparser.RawConfigParser()
    parser.read(ROOT / "setup.cfg")
    make_repository(ROOT, Path(sys.argv[1]), parser["metadata"]["version"])
