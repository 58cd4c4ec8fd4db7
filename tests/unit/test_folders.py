# SPDX-License-Identifier: Apache-2.0
"""Folders of tests: those of killed processes are removed, and no others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support import folders

MAKE = """
import sys
from pathlib import Path
from tests.support import folders
print(folders.make("server", Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


def test_what_a_killed_process_has_left_is_removed_by_the_next_one(tmp_path: Path):
    with subprocess.Popen(
        [sys.executable, "-c", MAKE, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        (left / "data").write_text("much")
        (tmp_path / "another").mkdir()
        first = folders.make("machine", tmp_path)
        assert left.exists(), "its process lives"
        process.kill()
    second = folders.make("machine", tmp_path)
    assert set(tmp_path.iterdir()) == {first, second, tmp_path / "another"}
