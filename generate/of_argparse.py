# SPDX-License-Identifier: Apache-2.0
"""The commands of a program that argparse parses.

argparse has no public way to ask a parser for its options: `_actions` and `_SubParsersAction` are private names, which
argparse-manpage and shtab use, too. `oslo_config.cfg.ConfigOpts` keeps its parser in the private `_oparser`. Tests
compare what is read from them with what the programs' own `--help` prints.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from oslo_config import cfg

from generate.commands import Argument, Command, Kind, Option, Value, sentence
from gsaas import conf as gsaas_conf

KINDS: dict[str, Kind] = {
    "FILE": "file",
    "PATH": "file",
    "FOLDER": "folder",
    "DIR": "folder",
    "LOG_DIR": "folder",
}
"""How help writes names of files and folders."""
REPEATABLE = ("config_file", "config_dir")
"""Options of oslo.config that may be repeated: it has actions of its own for them."""


def of_parser(
    parser: argparse.ArgumentParser, summary: str, choices: dict[str, tuple[str, ...]]
) -> Command:
    """Return the commands of *parser*; *choices* are words to offer for options that do not list them, by option."""
    return _command(parser, parser.prog, summary, choices)


def of_service(
    name: str, summary: str, description: str, cli: Sequence[cfg.Opt], argv: Sequence[str] = ()
) -> Command:
    """Return the commands of a program that parses with `gsaas.conf.load`, which accepts *argv*."""
    settings = gsaas_conf.load(argv, files=[], prog=name, description=description, cli=cli)
    parser = settings._oparser
    if parser is None:
        raise RuntimeError("oslo.config keeps no parser any more")
    return of_parser(parser, summary, {})


def _command(
    parser: argparse.ArgumentParser, name: str, summary: str, choices: dict[str, tuple[str, ...]]
) -> Command:
    options, arguments, commands = [], [], []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summaries = {choice.dest: choice.help or "" for choice in action._get_subactions()}
            commands += [
                _command(inner, word, summaries.get(word, ""), choices)
                for word, inner in action.choices.items()
            ]
        elif action.option_strings and not _is_noise(action):
            options.append(_option(parser, action, choices))
        elif not action.option_strings:
            arguments.append(_argument(parser, action))
    required = [f"{o.names[0]} {o.value.metavar}" for o in options if o.required and o.value]
    words = [parser.prog, *required, *(["[option ...]"] if len(options) > 1 else [])]
    words += [f"{a.value.metavar}{' ...' if a.repeatable else ''}" for a in arguments]
    description = parser.description or (sentence(summary) if summary else "")
    return Command(
        name,
        summary,
        (" ".join([*words, *(["COMMAND ..."] if commands else [])]),),
        "\n\n".join(filter(None, (description, parser.epilog))),
        options=tuple(options),
        arguments=tuple(arguments),
        commands=tuple(commands),
    )


def _option(
    parser: argparse.ArgumentParser, action: argparse.Action, choices: dict[str, tuple[str, ...]]
) -> Option:
    names = tuple(action.option_strings)
    value = None
    if action.nargs != 0:
        value = _value(action, _long(names).strip("-").replace("-", "_").upper())
        if _long(names) in choices:
            value = Value(value.metavar, choices[_long(names)])
    return Option(
        names,
        _help(parser, action),
        value,
        repeatable=isinstance(action, argparse._AppendAction) or action.dest in REPEATABLE,
        required=action.required,
    )


def _long(names: Sequence[str]) -> str:
    """Return the first name with two dashes, or the first name if there is none."""
    return next((name for name in names if name.startswith("--")), names[0])


def _argument(parser: argparse.ArgumentParser, action: argparse.Action) -> Argument:
    repeatable = action.nargs in ("+", "*")
    value = _value(action, action.dest.upper())
    return Argument(
        value, _help(parser, action), repeatable, required=action.nargs not in ("?", "*")
    )


def _value(action: argparse.Action, name: str) -> Value:
    choices = tuple(map(str, action.choices or ()))
    metavar = action.metavar if isinstance(action.metavar, str) else "|".join(choices) or name
    kind = "file" if action.type is Path else KINDS.get(metavar)
    return Value(metavar, choices, kind)


def _is_noise(action: argparse.Action) -> bool:
    """Whether oslo.config adds *action* by itself to what the program declares: `--nodebug`, `--shell_completion`."""
    return (action.help or "").startswith("The inverse of") or action.dest == "shell_completion"


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = (action.help or "") % {**vars(action), "prog": parser.prog}
    # The default of --config-file is what exists on the machine that generates, so it is not a part of the page.
    return " ".join(text.split()).replace(" Defaults to None.", "")
