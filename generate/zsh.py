# SPDX-License-Identifier: Apache-2.0
"""Completion for zsh: a function for each command, of which `_arguments` does the work; see zshcompsys(1)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from generate.commands import Argument, Command, Option, Program, Value, spellings, walk

HEAD = """\
#compdef {name}
# Completion of {name} for zsh, generated from its commands, which are to be changed instead.
"""


def render(program: Program) -> str:
    """Return the file that completes *program*."""
    lines = HEAD.format(name=program.name).splitlines()
    for path, command in reversed(list(walk(program.command))):
        lines += ["", *_command(program, path, command)]
    lines += ["", f'{_function(program, ())} "$@"']
    return "\n".join(lines) + "\n"


def _function(program: Program, path: tuple[str, ...]) -> str:
    return "_" + "_".join((program.name, *path)).replace("-", "_")


def _command(program: Program, path: tuple[str, ...], command: Command) -> Iterator[str]:
    specs = [spec for option in command.options for spec in _specs(option, program.either_dash)]
    yield f"{_function(program, path)}() {{"
    if not path:
        for inner in command.commands:
            if inner.actions:
                yield from _dispatch(program, inner)
                specs += _action_specs(inner)
    if command.commands:
        yield "    local context state state_descr line"
        yield "    typeset -A opt_args"
        yield from _arguments(["-C", *specs, "1:command:->command", "*:: :->rest"])
        yield "    case $state in"
        yield "    command)"
        yield "        local -a commands=("
        for inner in command.commands:
            yield f"            {shlex.quote(f'{inner.name}:{inner.summary}')}"
        yield "        )"
        yield "        _describe command commands"
        yield "        ;;"
        yield "    rest)"
        yield "        case $words[1] in"
        for inner in command.commands:
            yield f"        {inner.name}) {_function(program, (*path, inner.name))} ;;"
        yield "        esac"
        yield "        ;;"
        yield "    esac"
    else:
        specs += [_argument(argument) for argument in command.arguments]
        if command.runs_command:
            specs.append("*:: :_normal")
        yield from _arguments(['"$@"', *specs])
    yield "}"


def _arguments(specs: list[str]) -> Iterator[str]:
    words = [spec if spec in ('"$@"', "-C") else shlex.quote(spec) for spec in specs]
    yield "    _arguments \\"
    yield from (f"        {word} \\" for word in words[:-1])
    yield f"        {words[-1]}"


def _dispatch(program: Program, command: Command) -> Iterator[str]:
    """Yield what completes *command* if an option selects it, wherever that is."""
    names = _action_names(command)
    yield f"    if [[ $words[2] == -* && -n ${{(M)words[2,CURRENT-1]:#({'|'.join(names)})}} ]]; then"
    # It is parsed, and not offered again.
    hidden = " ".join(shlex.quote(f"!{name}") for name in names)
    yield f"        {_function(program, (command.name,))} {hidden}"
    yield "        return"
    yield "    fi"


def _action_names(command: Command) -> list[str]:
    return [f"{dash}{action}" for action in command.actions for dash in ("", "-")]


def _action_specs(command: Command) -> list[str]:
    return [f"{command.actions[0]}[{_escaped(command.summary)}]"]


def _specs(option: Option, either_dash: bool) -> Iterator[str]:
    """Yield how `_arguments` calls the names of *option*; those with another dash are parsed and not offered."""
    names = spellings(option, either_dash)
    others = "" if option.repeatable or len(names) == 1 else f"({' '.join(names)})"
    for name in names:
        hidden = "" if name in option.names else "!"
        yield (
            f"{hidden}{'*' if option.repeatable else others}{name}{_separator(option, name, either_dash)}"
            f"[{_escaped(option.help)}]{_value(option.value)}"
        )


def _separator(option: Option, name: str, either_dash: bool) -> str:
    """Return what says where the value of an option is: after `=` or a space, or glued to a name of one letter."""
    if option.value is None:
        return ""
    if option.value.optional:
        return "=-"
    return "=" if either_dash or name.startswith("--") else "+"


def _value(value: Value | None) -> str:
    if value is None:
        return ""
    return f"{':' if value.optional else ''}:{_escaped(value.metavar)}:{_action(value)}"


def _action(value: Value) -> str:
    if value.kind:
        return "_files" if value.kind == "file" else "_files -/"
    return f"({' '.join(value.choices)})" if value.choices else " "


def _argument(argument: Argument) -> str:
    begin = "*" if argument.repeatable else "" if argument.required else ":"
    return f"{begin}:{_escaped(argument.value.metavar)}:{_action(argument.value)}"


def _escaped(text: str) -> str:
    for character in "\\[]:":
        text = text.replace(character, f"\\{character}")
    return text
