# SPDX-License-Identifier: Apache-2.0
"""The generated files are what is generated now, and are installed where shells and man look for them."""

from __future__ import annotations

import configparser
from pathlib import PurePosixPath

import pytest

from generate import files, programs

NO_PAGE = {"gsaas-cli"}
"""What the program gsaas starts; users never do."""


def setup_cfg(folder: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(delimiters=("=",))
    parser.read(files.REPOSITORY / folder / "setup.cfg")
    return parser


def test_the_generated_files_are_what_the_generator_writes_now() -> None:
    """If this fails, run `./dev generate`, look at the difference, and commit it."""
    assert files.present() == files.expected()


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
    root = files.REPOSITORY / distribution.folder
    installed = {
        str(PurePosixPath(folder) / path.name): path
        for folder, patterns in setup_cfg(distribution.folder)["options.data_files"].items()
        for pattern in patterns.split()
        for path in root.glob(pattern)
    }
    shipped = {path for path in (root / files.SHARE).rglob("*") if path.is_file()}
    assert shipped
    assert {path: installed.get(path.relative_to(root).as_posix()) for path in shipped} == {
        path: path for path in shipped
    }
