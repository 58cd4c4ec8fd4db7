# SPDX-License-Identifier: Apache-2.0
"""The commands of `gsaas`, from the table in `gsaasclient.cli.commands`."""

from __future__ import annotations

import configparser
import importlib
from pathlib import Path

from generate.commands import Argument, Command, Option, Program, Value, sentence
from gsaas.objects.lifecycle import Status
from gsaasclient.cli import help
from gsaasclient.cli import parser as client
from gsaasclient.cli.columns import Column
from gsaasclient.cli.commands import COMMANDS

SETUP = Path(__file__).resolve().parents[1] / "setup.cfg"
FILES = ("FILE",)
"""Values that are names of files, as the help writes them."""
COLUMNS = {
    "alloc": "leases:COLUMNS",
    "env": "leases:VARIABLES",
    "policies": "policies:LIST",
    "policy": "policies:FIELDS",
    "release": "leases:COLUMNS",
}
"""Command -> the columns of its output, where they are not `COLUMNS` of the module of its handler."""


HELP = Option(("--help",), "print the help of the program, or of the command")


def program() -> Program:
    """Return `gsaas`."""
    usage, explanation, examples = help.INTRODUCTION.split("\n\n", 2)
    lines = [line.removeprefix("usage:").strip() for line in usage.splitlines()]
    whole = Command(
        "gsaas",
        help.SUMMARY,
        tuple(line.partition("  ")[0] for line in lines),
        explanation + "\n\n" + help.NOTATION,
        options=(
            HELP,
            Option(("--version",), "print the release"),
        ),
        commands=(*(_command(spec) for spec in COMMANDS.values()), _help()),
    )
    sections = (
        ("Examples", examples),
        ("Output", help.OUTPUT),
        ("Environment", help.CREDENTIALS),
        ("Exit status", help.EXIT_STATUSES),
    )
    return Program(whole, 1, sections, either_dash=True)


def _help() -> Command:
    """Return the command that the parser adds to those of the table."""
    value = Value("COMMAND", tuple(COMMANDS))
    summary = "print the help of the program, or of a command"
    arguments = (Argument(value, required=False),)
    return Command(
        "help", summary, ("gsaas help [COMMAND]",), sentence(summary), arguments=arguments
    )


def _command(spec: client.CommandSpec) -> Command:
    options = tuple(_option(spec, option) for option in spec.options)
    by_name = {option.name: made for option, made in zip(spec.options, options, strict=True)}
    arguments: tuple[Argument, ...] = ()
    if spec.positional and (known := by_name[spec.positional]).value:
        arguments = (Argument(known.value, known.help, required=False),)
    return Command(
        spec.name,
        spec.help.summary,
        (spec.help.usage,),
        sentence(spec.help.summary) + "\n" + spec.help.details,
        options=(*options, HELP),
        arguments=arguments,
        example=spec.help.example,
        actions=(f"-{spec.action}", f"-{spec.name}") if spec.action else (),
        runs_command=spec.takes_command,
    )


def _option(spec: client.CommandSpec, option: client.Option) -> Option:
    value = None
    if option.metavar is not None:
        value = Value(
            option.metavar,
            choices(spec, option),
            kind="file" if option.metavar in FILES else None,
            optional=option.bare_value is not None,
        )
    names = tuple(f"-{name}" for name in option.names)
    return Option(names, option.help, value, repeatable=option.repeatable)


def choices(spec: client.CommandSpec, option: client.Option) -> tuple[str, ...]:
    """Return the words that *option* of *spec* accepts, or the well-known ones of them."""
    if isinstance(option.convert, client.OneOf):
        return option.convert.allowed
    if option.name == "policy" or (spec.name == "policy" and option.metavar == "NAME"):
        return policies()
    if option.name == "status":
        return tuple(Status)
    if option.name == "c":
        return columns(spec)
    words = (option.metavar or "").split("|")
    return tuple(word for word in words if word.isalpha() and word.islower())


def policies() -> tuple[str, ...]:
    """Return the names of the policies that come with GSaaS."""
    parser = configparser.RawConfigParser(delimiters=("=",))
    parser.read(SETUP)
    lines = parser["options.entry_points"]["gsaas.gpgpums.policies"].split("\n")
    return tuple(line.split(" = ")[0] for line in lines if line)


def columns(spec: client.CommandSpec) -> tuple[str, ...]:
    """Return the names of the columns that the command of *spec* can print."""
    default = f"{spec.handler.function.partition(':')[0]}:COLUMNS"
    module, _, name = COLUMNS.get(spec.name, default).partition(":")
    known: tuple[Column, ...] = getattr(importlib.import_module(f"gsaasclient.cli.{module}"), name)
    return tuple(column.name for column in known)
