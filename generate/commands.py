# SPDX-License-Identifier: Apache-2.0
"""What is known of a program: its commands with their options and arguments, as values, whatever declares them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["file", "folder"]


@dataclass(frozen=True)
class Value:
    """The value of an option or argument: how help writes it, and what a shell can offer for it."""

    metavar: str
    choices: tuple[str, ...] = ()
    """Every allowed word, or the well-known ones."""
    kind: Kind | None = None
    """Whether it is the name of a file or a folder."""
    optional: bool = False
    """Whether it may be left out; it then follows only after `=`, or is a number."""


@dataclass(frozen=True)
class Option:
    """One option of a command."""

    names: tuple[str, ...]
    """With their dashes, e.g. `-f` and `--format`."""
    help: str
    value: Value | None = None
    repeatable: bool = False
    required: bool = False


@dataclass(frozen=True)
class Argument:
    """One argument of a command that is no option."""

    value: Value
    help: str = ""
    repeatable: bool = False
    required: bool = True


@dataclass(frozen=True)
class Command:
    """One command; a program is the command that contains all others."""

    name: str
    summary: str
    synopsis: tuple[str, ...]
    """Complete command lines; brackets mark what may be left out."""
    description: str = ""
    """Paragraphs, wrapped anywhere; indented lines are shown as they are."""
    options: tuple[Option, ...] = ()
    arguments: tuple[Argument, ...] = ()
    commands: tuple[Command, ...] = ()
    example: str = ""
    actions: tuple[str, ...] = ()
    """Options that select this command wherever they are on the line, e.g. `-l`."""
    runs_command: bool = False
    """Whether another command line follows after `--`."""


@dataclass(frozen=True)
class Program:
    """One program, and what its manual page says besides its commands."""

    command: Command
    section: int
    """The section of the manual: 1 for users, 8 for operators."""
    sections: tuple[tuple[str, str], ...] = ()
    """Further sections of the page: heading and text, in the form of `Command.description`."""
    either_dash: bool = False
    """Whether every option may be written with two dashes as well as with one."""

    @property
    def name(self) -> str:
        """The name of the program."""
        return self.command.name


def walk(command: Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Command]]:
    """Yield *command* and every command in it, each with the words by which it is called: none for *command*."""
    yield path, command
    for inner in command.commands:
        yield from walk(inner, (*path, inner.name))


def spellings(option: Option, either_dash: bool) -> tuple[str, ...]:
    """Return every accepted way to write the name of *option*."""
    if not either_dash:
        return option.names
    long = tuple(f"-{name}" for name in option.names if not name.startswith("--"))
    return option.names + long


def by_words(program: Program) -> Iterator[tuple[str, Value]]:
    """Yield every value that *program* takes, with the words that stand for it.

    These are the words of the command, and the first name of the option, or # and the number of the argument; `#*`
    is an argument that may be repeated.
    """
    for path, command in walk(program.command):
        for option in command.options:
            if option.value:
                yield " ".join((*path, option.names[0])), option.value
        for number, argument in enumerate(command.arguments):
            yield " ".join((*path, f"#{'*' if argument.repeatable else number}")), argument.value


def sentence(summary: str) -> str:
    """Return a summary, as it follows a name, as a sentence."""
    return f"{summary[0].upper()}{summary[1:]}."


@dataclass(frozen=True)
class Block:
    """A paragraph of a text, in one line; or, if *literal*, lines to show as they are."""

    text: str
    literal: bool


def blocks(text: str) -> list[Block]:
    """Return the paragraphs and indented parts of *text*, in order."""
    found: list[Block] = []
    for part in text.strip("\n").split("\n\n"):
        lines = part.splitlines()
        while lines:
            indented = lines[0].startswith("  ")
            end = next(
                (i for i, line in enumerate(lines) if line.startswith("  ") != indented), len(lines)
            )
            taken, lines = lines[:end], lines[end:]
            if not indented:
                found.append(Block(" ".join(line.strip() for line in taken), literal=False))
            elif found and found[-1].literal and len(taken) == len(part.splitlines()):
                found[-1] = replace(found[-1], text=found[-1].text + "\n\n" + "\n".join(taken))
            else:
                found.append(Block("\n".join(taken), literal=True))
    return [block for block in found if block.text]
