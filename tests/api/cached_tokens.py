# SPDX-License-Identifier: Apache-2.0
"""What the tests of the cache of tokens have in common: both programs, and the files of the cache."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.api.test_client_cloud import CloudUser
from tests.support.launcher import OBJECTS, Launcher

ONE = ("-ncgpus=1", "--")
CLI = """#!/bin/sh
echo "$*" >>{log}
exec {real} "$@"
"""
NOTES = """#!/bin/sh
echo "$*" >>{log}
"""


class Programs:
    """`gsaas` in C, and a `gsaas-cli` beside it that notes when it is called."""

    def __init__(self, built: Path, folder: Path) -> None:
        self.log = folder / "calls"
        for name in ("gsaas", *OBJECTS):
            shutil.copy(built / name, folder / name)
        cli = folder / "gsaas-cli"
        cli.write_text(CLI.format(log=self.log, real=built / "gsaas-cli"))
        cli.chmod(0o755)
        self.launcher = Launcher(folder / "gsaas", folder, {"GSAAS_CREDENTIALS": ""})
        self.python = Launcher(built / "gsaas-cli", folder, {"GSAAS_CREDENTIALS": ""})

    def only_note_calls(self) -> None:
        """Have `gsaas-cli` do nothing else from now on: a process that signs in takes most of a second."""
        (self.log.parent / "gsaas-cli").write_text(NOTES.format(log=self.log))

    def calls(self) -> list[str]:
        """Return the arguments of each call of gsaas-cli, and forget them."""
        found = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return [words.partition(" ")[0] for words in found]


@pytest.fixture
def both(programs: Path, tmp_path: Path) -> Programs:
    folder = tmp_path / "bin"
    folder.mkdir()
    return Programs(programs, folder)


@pytest.fixture
def files(user: CloudUser, tmp_path: Path) -> Callable[[], list[Path]]:
    """What is in the cache."""
    return lambda: sorted((tmp_path / "cache" / "gsaas").glob("*"))


def succeeds(launcher: Launcher, *command: str) -> None:
    ran = launcher.run(*ONE, *(command or ("true",)))
    assert (ran.returncode, ran.stderr) == (0, "")


def rewrite(file: Path, **members: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | members))
