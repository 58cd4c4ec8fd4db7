# SPDX-License-Identifier: Apache-2.0
"""The manual pages: formatters find nothing wrong with them, and they have what the programs' own help has."""

from __future__ import annotations

import importlib
import re
import subprocess
from pathlib import Path

import pytest

from generate import files, programs
from gsaasclient.cli import help
from gsaasclient.cli.commands import COMMANDS

PAGES = [path for path in files.expected() if "/man/" in path]
MODULES = {
    program.name: f"gsaas.cli.{program.name.partition('-')[2]}"
    for program in programs.all_programs()
    if program.name != "gsaas"
}
WITHOUT_A_DATE = 'missing date, using "": TH'
"""A date would be that on which somebody generated the page."""
OF_LIBRARIES = {"--shell_completion"}
"""With the opposites of options, such as --nodebug: oslo.config adds them to every program."""
OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the generated files."""
    folder = tmp_path_factory.mktemp("generated")
    files.write(folder)
    return folder


def shown(page: Path) -> str:
    """Return a page as a reader sees it, in one line: words, and what is broken at hyphens, put together."""
    command = ["groff", "-man", "-Tutf8", "-rLL=200n", "-P-cbou", page]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return " ".join(done.stdout.replace("\N{HYPHEN}", "-").replace("\N{MINUS SIGN}", "-").split())


def options_of(text: str) -> set[str]:
    """Return the options that begin a line of a help text, with their other names."""
    heads = re.findall(r"^ {2,}(-.*?)(?:  |$)", text, re.MULTILINE)
    return {name for head in heads for name in OPTION.findall(head)}


@pytest.mark.parametrize("page", PAGES)
def test_mandoc_and_groff_find_nothing_wrong_with_a_page(page: str, generated: Path) -> None:
    lint = subprocess.run(
        ["mandoc", "-Tlint", "-Wwarning", page],
        cwd=generated,
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [line for line in lint.stdout.splitlines() if WITHOUT_A_DATE not in line]
    assert not complaints, lint.stdout
    groff = ["groff", "-man", "-ww", "-z", "-Tutf8", page]
    assert not subprocess.run(
        groff, cwd=generated, capture_output=True, text=True, check=True
    ).stderr


@pytest.mark.parametrize("name", MODULES)
def test_a_page_has_every_option_of_the_programs_own_help(
    name: str, generated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = shown(generated / next(page for page in PAGES if Path(page).stem == name))
    main = importlib.import_module(MODULES[name]).main
    options: set[str] = set()
    for words in [[], *commands_of(name)]:
        assert " ".join([name, *words]) in page
        with pytest.raises(SystemExit) as ended:
            main([*words, "--help"])
        assert ended.value.code == 0
        options |= options_of(capsys.readouterr().out)
    assert options >= {"-h", "--help"}
    wanted = {option for option in options - OF_LIBRARIES if not option.startswith("--no")}
    assert not {option for option in wanted if option not in page}


def commands_of(name: str) -> list[list[str]]:
    """Return the commands of a program, as its help names them."""
    return {
        "gsaas-manage": [["check"], ["db", "upgrade"], ["db", "version"], ["db", "check"]]
        + [["grant-key"], ["limits", "register"]]
        + [["setup", role] for role in ("controller", "compute", "gpu-host", "answers")],
        "gsaas-status": [["upgrade", "check"]],
        "gsaas-sim": [["run"], ["compare"], ["import"], ["plan"], ["example"]],
    }.get(name, [])


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_of_gsaas_has_the_help_of_every_command(name: str, generated: Path) -> None:
    page = shown(generated / "client/share/man/man1/gsaas.1")
    command = COMMANDS[name]
    assert command.help.usage in page
    assert command.help.example in page
    for option in command.options:
        assert " ".join(option.help.split()) in page
    for paragraph in command.help.details.split("\n\n"):
        assert " ".join(paragraph.split()) in page


def test_the_page_of_gsaas_has_the_help_of_the_program(generated: Path) -> None:
    page = shown(generated / "client/share/man/man1/gsaas.1")
    for paragraph in (help.NOTATION, help.OUTPUT, help.CREDENTIALS, help.EXIT_STATUSES):
        assert " ".join(paragraph.split()) in page
