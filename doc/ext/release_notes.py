"""The directive `release-notes` of reno, for any clone.

reno finds in the history of git which release a note belongs to. It cannot read a shallow clone, and without tags it
calls the release 0.0.0. There, and without git, the notes are read from a repository that is made for it, in which all
of them belong to the release that setup.cfg names.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from reno.sphinxext import ReleaseNotesDirective
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "releasenotes"


class ReleaseNotes(ReleaseNotesDirective):
    """Shows the notes of every release."""

    def run(self) -> list[object]:
        """Return the nodes of the report."""
        env = self.state.document.settings.env
        target = Path(env.app.doctreedir).with_name("release-notes")
        self.options["reporoot"] = str(repository(ROOT, target, env.config.release))
        for note in sorted((ROOT / FOLDER).rglob("*.yaml")):
            env.note_dependency(str(note))
        return super().run()


def repository(root: Path, target: Path, release: str) -> Path:
    """Return *root* if reno can read its history; otherwise *target*, where its notes are committed as *release*."""
    if _has_history(root):
        return root
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(root / FOLDER, target / FOLDER)
    identity = (
        "-c",
        "user.name=GSaaS",
        "-c",
        "user.email=gsaas@localhost",
        "-c",
        "commit.gpgsign=false",
    )
    for arguments in (
        ("init", "-q"),
        ("add", "."),
        (*identity, "commit", "-q", "-m", "All notes"),
        (*identity, "tag", "-a", "-m", release, release),
    ):
        subprocess.run(["git", *arguments], cwd=target, check=True)
    return target


def _has_history(root: Path) -> bool:
    """Whether *root* is a clone with all commits and with tags."""
    return _git(root, "rev-parse", "--is-shallow-repository") == "false" and bool(_git(root, "tag"))


def _git(root: Path, *arguments: str) -> str:
    """Return what git prints, or nothing if it fails."""
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("release-notes", ReleaseNotes)
    return {"parallel_read_safe": False}
