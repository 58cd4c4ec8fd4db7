# SPDX-License-Identifier: Apache-2.0
"""Completion for bash, whose file bash-completion loads when it completes the command for the first time.

A file is what is known of the commands, as `case` statements, and `engine.bash`, which reads the line and asks them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from generate.commands import Command, Option, Program, Value, by_words, spellings, walk

ENGINE = (Path(__file__).parent / "engine.bash").read_text()
HEAD = """\
# Completion of {name} for bash, generated from its commands, which are to be changed instead.
# shellcheck shell=bash disable=SC2034

# Set `commands` and `options` to what the command $1 has. An entry of `options` is v if a value follows and r if it may
# be repeated, then its names; those after ; are offered only once two dashes are typed.
"""
VALUES = """
# Set `words` to what the option or argument $1 of a command accepts, and `kind` if it is the name of a file or folder.
"""
ACTION = """
# Set `command` to the command that the option $1 selects; fail if it selects none.
"""


def render(program: Program) -> str:
    """Return the file that completes *program*."""
    function = "_" + program.name.replace("-", "_")
    text = HEAD.format(name=program.name)
    text += _function(f"{function}_command", "commands=() options=()", _commands(program))
    text += VALUES
    text += _function(f"{function}_values", "words=() kind=", _values(program))
    text += ACTION
    text += _function(f"{function}_action", "", _actions(program), otherwise="return 1")
    engine = ENGINE.replace("_PROGRAM", function).replace("NAME", program.name)
    return text + engine


def _function(name: str, first: str, cases: Mapping[str, str], otherwise: str = "") -> str:
    lines = [f"{name}() {{", *([f"    {first}"] if first else [])]
    if cases:
        lines.append("    case $1 in")
        lines += [f"    {pattern}) {body} ;;" for pattern, body in cases.items()]
        lines += [f"    *) {otherwise} ;;"] if otherwise else []
        lines.append("    esac")
    elif otherwise:
        lines.append(f"    {otherwise}")
    return "\n".join([*lines, "}"]) + "\n"


def _commands(program: Program) -> dict[str, str]:
    cases = {}
    for path, command in walk(program.command):
        parts = []
        if command.commands:
            parts.append(f"commands=({' '.join(inner.name for inner in command.commands)})")
        entries = [_entry(option, program.either_dash) for option in command.options]
        if not path:
            entries += [_action_entry(inner) for inner in command.commands if inner.actions]
        if entries:
            parts.append(f"options=({' '.join(map(_quoted, entries))})")
        cases[shlex.quote(" ".join(path))] = " ".join(parts)
    return {pattern: body for pattern, body in cases.items() if body}


def _entry(option: Option, either_dash: bool) -> str:
    needs_value = option.value is not None and not option.value.optional
    flags = ("v" if needs_value else "") + ("r" if option.repeatable else "")
    more = spellings(option, either_dash)[len(option.names) :]
    return f"{flags}:{','.join(option.names)}{';' if more else ''}{','.join(more)}"


def _action_entry(command: Command) -> str:
    short, long = command.actions
    return f":{short};-{short},{long},-{long}"


def _values(program: Program) -> dict[str, str]:
    found = {}
    for words, value in by_words(program):
        if body := _value(value):
            found[words] = body
    return _grouped(found)


def _value(value: Value) -> str:
    if value.kind:
        return f"kind={_quoted(value.kind)}"
    return f"words=({' '.join(map(shlex.quote, value.choices))})" if value.choices else ""


def _grouped(cases: Mapping[str, str]) -> dict[str, str]:
    """Return *cases* with one pattern for all words that lead to the same."""
    bodies: dict[str, list[str]] = {}
    for words, body in cases.items():
        bodies.setdefault(body, []).append(_pattern(words))
    return {" | ".join(patterns): body for body, patterns in bodies.items()}


def _pattern(words: str) -> str:
    """Return the pattern of *words*, in which a last * stands for anything."""
    return f"{shlex.quote(words[:-1])}*" if words.endswith("*") else shlex.quote(words)


def _quoted(text: str) -> str:
    """Return *text* in quotes; it has no quote itself."""
    return f"'{text}'"


def _actions(program: Program) -> dict[str, str]:
    return {
        " | ".join(f"{dash}{action}" for action in command.actions for dash in ("", "-")): (
            f"command={command.name}"
        )
        for command in program.command.commands
        if command.actions
    }
