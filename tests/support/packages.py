# SPDX-License-Identifier: Apache-2.0
"""Installs packages that a test has written, with pip, and without the network."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE

NEEDS_PIP = pytest.mark.skipif(
    not (find_spec("pip") and find_spec("setuptools")), reason="needs pip and setuptools"
)
_INSTALL = ("install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation")


def install(folder: Path, files: Mapping[str, str]) -> Path:
    """Build and install the package that consists of *files*; return the folder to import it from."""
    source, target = folder / "source", folder / "target"
    source.mkdir(parents=True)
    for name, text in files.items():
        (source / name).write_text(text, encoding="utf-8")
    subprocess.run(
        [sys.executable, "-m", "pip", *_INSTALL, "--target", str(target), str(source)],
        check=True,
        capture_output=True,
        timeout=PATIENCE,
    )
    return target
