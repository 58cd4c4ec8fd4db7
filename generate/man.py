# SPDX-License-Identifier: Apache-2.0
"""Manual pages: a program as text of the man macros of roff, man(7)."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator

from generate.commands import Argument, Command, Option, Program, blocks, walk

MANUAL = "GPU scheduling as a service"
CODE = re.compile(r"`([^`]+)`")
WIDTH = 78
"""Columns of the source that a paragraph fills at most."""


def render(program: Program, others: Iterable[Program]) -> str:
    """Return the page of *program*; its SEE ALSO names the pages of *others*."""
    whole = program.command
    lines = [
        '.\\" Generated from the commands, which are to be changed instead.',
        f'.TH {program.name.upper()} {program.section} "" GSaaS "{MANUAL}"',
        ".SH NAME",
        f"{_text(program.name)} \\- {_text(whole.summary)}",
        ".SH SYNOPSIS",
        *_synopsis(whole),
        *_section("Description", whole.description),
        ".SH OPTIONS",
        *_options(whole.options),
        *_arguments(whole.arguments),
    ]
    if whole.commands:
        lines.append(".SH COMMANDS")
        for path, command in walk(whole):
            if path and not command.commands:
                lines += _command(program.name, path, command)
    for heading, text in program.sections:
        lines += _section(heading, text)
    lines += [".SH SEE ALSO", *_see_also(program, others)]
    return "\n".join(lines) + "\n"


def _command(name: str, path: tuple[str, ...], command: Command) -> Iterator[str]:
    yield f'.SS "{_text(" ".join((name, *path)))}"'
    yield from _synopsis(command)
    yield from _paragraphs(command.description)
    yield from _options(option for option in command.options if "--help" not in option.names)
    yield from _arguments(argument for argument in command.arguments if argument.required)
    if command.example:
        yield from (".PP", "Example:", *_literal(command.example))


def _synopsis(command: Command) -> Iterator[str]:
    for number, line in enumerate(command.synopsis):
        if number:
            yield ".br"
        yield f".B {_text(line)}"


def _options(options: Iterable[Option]) -> Iterator[str]:
    for option in options:
        value = ""
        if option.value:
            # As the program's own help writes it: -name=VALUE, and --name VALUE with two dashes.
            separator = " " if option.names[-1].startswith("--") else "="
            value = rf"{separator}\fI{_text(option.value.metavar)}\fR"
            value = rf"[{value}]" if option.value.optional else value
        yield ".TP"
        yield ", ".join(rf"\fB{_text(name)}\fR{value}" for name in option.names)
        yield from _inline(option.help) or [r"\&"]


def _arguments(arguments: Iterable[Argument]) -> Iterator[str]:
    for argument in arguments:
        if argument.help or argument.value.choices:
            yield ".TP"
            yield rf"\fI{_text(argument.value.metavar)}\fR"
            yield from _inline(argument.help or "one of " + ", ".join(argument.value.choices))


def _section(heading: str, text: str) -> list[str]:
    return [f".SH {_heading(heading)}", *_paragraphs(text, first=True)] if text else []


def _heading(text: str) -> str:
    return f'"{text.upper()}"' if " " in text else text.upper()


def _paragraphs(text: str, *, first: bool = False) -> Iterator[str]:
    """Yield the lines of *text*; *first*: it follows a heading, after which a paragraph needs no beginning."""
    for block in blocks(text):
        if block.literal:
            yield from _literal(block.text, first=first)
        else:
            if not first:
                yield ".PP"
            yield from _inline(block.text)
        first = False


def _literal(text: str, *, first: bool = False) -> Iterator[str]:
    indent = min((len(line) - len(line.lstrip()) for line in text.splitlines() if line), default=0)
    if not first:
        yield ".PP"
    yield from (".RS 4", ".nf", *(_text(line[indent:]) for line in text.splitlines()))
    yield from (".fi", ".RE")


def _see_also(program: Program, others: Iterable[Program]) -> list[str]:
    names = [(other.name, other.section) for other in others if other.name != program.name]
    return [
        f".BR {_text(name)} ({section}){',' if number < len(names) else ''}"
        for number, (name, section) in enumerate(names, start=1)
    ]


def _inline(text: str) -> list[str]:
    """Return the lines of a paragraph in which what is in backticks is bold."""
    parts = CODE.split(text)
    styled = [rf"\fB{_text(part)}\fR" if i % 2 else _text(part) for i, part in enumerate(parts)]
    lines = textwrap.wrap("".join(styled), WIDTH, break_long_words=False, break_on_hyphens=False)
    return [_guarded(line) for line in lines]


def _text(text: str) -> str:
    """Return *text* with every character that roff would interpret escaped."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace("~", r"\(ti")
    escaped = escaped.replace("^", r"\(ha").replace("'", r"\(aq").replace("`", r"\(ga")
    escaped = escaped.replace('"', r"\(dq")
    return _guarded("".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in escaped))


def _guarded(line: str) -> str:
    """Return *line* with a mark before a first character that would make it a request."""
    return rf"\&{line}" if line.startswith((".", "'")) else line
