# SPDX-License-Identifier: Apache-2.0
"""The help describes what the program does."""

from __future__ import annotations

import importlib
import re
import shlex

import pytest

from gsaasclient.cli import help, history, leases, reservations
from gsaasclient.cli.cgpus import from_options
from gsaasclient.cli.commands import COMMANDS
from gsaasclient.cli.parser import HelpRequested, parse


def test_the_help_shows_every_command():
    for command in COMMANDS.values():
        assert f"\n  {command.name} " in help.of_program()
        assert command.help.summary in help.of_program()


def test_every_line_shown_in_the_help_can_be_typed():
    lines = re.findall(r"^  gsaas (-.*)$", help.of_program(), re.MULTILINE)
    assert len(lines) == 5
    for line in lines:
        command, values = parse(line.split(), COMMANDS)
        if command.name == "launch":
            from_options(values)


@pytest.mark.parametrize(
    ("command", "columns", "table"),
    [
        ("list", leases.COLUMNS, leases.LISTED),
        ("history", history.COLUMNS, history.TABLE),
        ("reservations", reservations.COLUMNS, (*reservations.TABLE, "reservation")),
    ],
)
def test_the_help_of_a_list_names_the_columns_that_its_table_leaves_out(command, columns, table):
    named = set(re.findall(r"\w+", COMMANDS[command].help.details))
    assert {column.name for column in columns} - {*table} <= named


@pytest.mark.parametrize("word", COMMANDS)
def test_the_help_of_a_command_has_its_options_and_an_example_that_can_be_typed(word):
    command = COMMANDS[word]
    text = help.of_command(command)
    assert all(f"-{option.name}" in text for option in command.options)
    assert max(map(len, text.splitlines())) <= 100
    example = command.help.example.removeprefix('eval "$(').removesuffix(')"')
    program, *words = shlex.split(example)
    assert program == "gsaas"
    assert parse(words, COMMANDS)[0] is command


@pytest.mark.parametrize("columns", ["60", "80", "200"])
def test_help_fits_in_the_width_of_the_terminal_and_says_the_same(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    width = help.columns()
    assert width == min(int(columns), help.WIDTH)
    for text, narrow in [
        (help.of_program(), help.of_program(width)),
        *((help.of_command(c), help.of_command(c, width)) for c in COMMANDS.values()),
    ]:
        assert narrow.split() == text.split()
        prose = [line for line in narrow.splitlines() if not line.startswith(("usage:", "  gsaas"))]
        written = {line for line in text.splitlines() if line.startswith(" ")}
        assert [line for line in prose if len(line) > width and line not in written] == []


@pytest.mark.parametrize("word", COMMANDS)
def test_every_command_has_its_handler(word):
    module, function = COMMANDS[word].handler.function.split(":")
    assert callable(getattr(importlib.import_module(f"gsaasclient.cli.{module}"), function))


@pytest.mark.parametrize("word", COMMANDS)
def test_help_is_the_answer_to_help_after_any_option_of_a_command(word):
    for option in COMMANDS[word].options:
        with pytest.raises(HelpRequested) as wanted:
            parse([word, f"-{option.name}", "--help"], COMMANDS)
        assert wanted.value.command == word
