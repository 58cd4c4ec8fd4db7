# SPDX-License-Identifier: Apache-2.0
"""Every program has its generated files, and they are installed where shells and man look for them."""

from __future__ import annotations

import configparser
from pathlib import Path, PurePosixPath

import pytest

from generate import files, programs

REPOSITORY = Path(__file__).resolve().parents[3]
NO_PAGE = {"gsaas-cli"}
"""What the program gsaas starts; users never do."""


def setup_cfg(folder: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(delimiters=("=",))
    parser.read(REPOSITORY / folder / "setup.cfg")
    return parser


def test_what_is_written_is_what_is_expected(tmp_path: Path) -> None:
    files.write(tmp_path)
    written = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert {
        path.relative_to(tmp_path).as_posix(): path.read_text() for path in written
    } == files.expected()


def test_every_program_has_a_page() -> None:
    scripts = {
        line.partition(" = ")[0]
        for distribution in programs.DISTRIBUTIONS
        for line in setup_cfg(distribution.folder)["options.entry_points"][
            "console_scripts"
        ].splitlines()
        if line
    }
    assert {program.name for program in programs.all_programs()} == (scripts - NO_PAGE) | {"gsaas"}


@pytest.mark.parametrize("distribution", programs.DISTRIBUTIONS, ids=lambda it: it.folder)
def test_every_generated_file_is_installed_in_the_folder_of_its_name(
    distribution: programs.Distribution,
) -> None:
    """/usr/share/man/man1, /usr/share/bash-completion/completions and so on, below the prefix of the installation."""
    patterns = [
        str(PurePosixPath(distribution.folder, pattern))
        for folder, lines in setup_cfg(distribution.folder)["options.data_files"].items()
        for pattern in lines.split()
        if str(PurePosixPath(pattern).parent) == folder
    ]
    share = PurePosixPath(distribution.folder, files.SHARE)
    generated = [path for path in files.expected() if PurePosixPath(path).is_relative_to(share)]
    assert generated
    assert not [
        path
        for path in generated
        if not any(PurePosixPath(path).match(pattern) for pattern in patterns)
    ]
