# SPDX-License-Identifier: Apache-2.0
"""Completion for fish: one `complete` for each command, option and argument, with the command that it belongs to."""

from __future__ import annotations

from collections.abc import Iterator

from generate.commands import Command, Option, Program, Value, spellings, walk

HEAD = """\
# Completion of {name} for fish, generated from its commands, which are to be changed instead.

# Print the command on the line before the cursor, with "--" if another command line follows; and the number of its
# arguments.
function {function}_command
    set -l command
    set -l words (commandline -opc)
    set -e words[1]
    set -l arguments 0
    set -l skip
{actions}    for word in $words
        if test -n "$skip"
            set skip
            continue
        end
        switch $word
            case --
                printf '%s\n' "$command --" 0
                return
            case {valued}
                set skip yes
            case '-*'
                continue
            case '*'
                if contains -- (string trim "$command $word") {commands}
                    set command (string trim "$command $word")
                else
                    set arguments (math $arguments + 1)
                end
        end
    end
    printf '%s\n' "$command" $arguments
end

# Whether the command is $argv[1]; and, if it is given, whether it has $argv[2] arguments.
function {function}_at
    set -l found ({function}_command)
    test "$found[1]" = "$argv[1]"; and test "$found[2]" = "$argv[2]" -o (count $argv) -eq 1
end
"""
ACTION = """\
    if string match -q -- '-*' $words[1]; and string match -qr -- '^--?({names})$' $words
        set command {command}
    end
"""
DASHES = """
# Whether the word at the cursor, or the one before it, begins with two dashes.
function {function}_dashes
    string match -q -- '--*' (commandline -ct) (commandline -opc)[-1]
end
"""
OTHER = """
# Print what may complete the command line after --.
function {function}_other
    set -l words (commandline -opc)
    set -l first (math (contains -i -- -- $words) + 1)
    complete -C (string join ' ' -- (string escape -- $words[$first..]) (commandline -ct))
end
"""


def render(program: Program) -> str:
    """Return the file that completes *program*."""
    function = "__" + program.name.replace("-", "_")
    commands = list(walk(program.command))
    text = HEAD.format(
        name=program.name,
        function=function,
        actions="".join(_action(inner) for inner in program.command.commands if inner.actions),
        valued=" ".join(_valued(program)),
        commands=" ".join(_quoted(" ".join(path)) for path, _ in commands if path),
    )
    if program.either_dash:
        text += DASHES.format(function=function)
    if any(command.runs_command for _, command in commands):
        text += OTHER.format(function=function)
    lines = [f"complete -c {program.name} -f"]
    for path, command in commands:
        at = _quoted(f"{function}_at {_quoted(' '.join(path))}")
        lines += [
            "",
            *_command(program, function, path, command, f"complete -c {program.name} -n {at}"),
        ]
    return text + "\n" + "\n".join(lines) + "\n"


def _command(
    program: Program, function: str, path: tuple[str, ...], command: Command, complete: str
) -> Iterator[str]:
    for inner in command.commands:
        yield f"{complete} -a {inner.name} -d {_quoted(inner.summary)}"
        if inner.actions:
            yield f"{complete} {_name(inner.actions[0], program.either_dash)} -d {_quoted(inner.summary)}"
    for option in command.options:
        for name in spellings(option, program.either_dash):
            other = "" if name in option.names else f" -n {function}_dashes"
            yield f"{complete}{other} {_name(name, program.either_dash)}{_value(option)} -d {_quoted(option.help)}"
    for number, argument in enumerate(command.arguments):
        if offered := _offered(argument.value):
            place = "" if argument.repeatable else f" {number}"
            at = f"{function}_at {_quoted(' '.join(path))}{place}"
            yield f"complete -c {program.name} -n {_quoted(at)} {offered}"
    if command.runs_command:
        behind = f"{function}_at {_quoted(' '.join((*path, '--')))}"
        yield f"complete -c {program.name} -n {_quoted(behind)} -a '({function}_other)'"


def _name(name: str, either_dash: bool) -> str:
    """Return how `complete` calls an option: long (two dashes), short (one letter) or old (one dash, any word).

    Only long and old ones may have their value after `=`.
    """
    if name.startswith("--"):
        return f"-l {name[2:]}"
    return f"-o {name[1:]}" if either_dash or len(name) > 2 else f"-s {name[1:]}"


def _value(option: Option) -> str:
    if option.value is None or option.value.optional:
        return ""
    return f" {'-r' if option.value.kind else '-x'} {_offered(option.value)}".rstrip()


def _offered(value: Value) -> str:
    if value.kind:
        return (
            "-F" if value.kind == "file" else "-a '(__fish_complete_directories (commandline -ct))'"
        )
    return f"-a {_quoted(' '.join(value.choices))}" if value.choices else ""


def _valued(program: Program) -> list[str]:
    """Return the options whose value may be a word of its own."""
    names = {
        name
        for _, command in walk(program.command)
        for option in command.options
        if option.value and not option.value.optional
        for name in spellings(option, program.either_dash)
    }
    return sorted(names)


def _action(command: Command) -> str:
    return ACTION.format(
        names="|".join(action[1:] for action in command.actions), command=command.name
    )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
