# SPDX-License-Identifier: Apache-2.0
"""The directive `programs`: what is known of the commands of programs, from which their manual pages are made, too.

    .. programs:: gsaas

names the programs to describe; without names, all of them are, but those of the option `except`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from generate.commands import Command, Option, Program, blocks, walk
from generate.programs import all_programs


class Programs(SphinxDirective):
    """Describes programs, each in a section of its own; a single one in the section that the page has begun."""

    optional_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar[dict[str, Any]] = {"except": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        """Return the nodes of the description."""
        names = self.arguments[0].split() if self.arguments else []
        left_out = self.options.get("except", "").split()
        found = [
            p for p in all_programs() if (not names or p.name in names) and p.name not in left_out
        ]
        lines = [line for program in found for line in describe(program, single=len(found) == 1)]
        container = nodes.section()
        container.document = self.state.document
        self.state.nested_parse(StringList(lines, "programs"), 0, container, match_titles=1)
        return container.children


def describe(program: Program, *, single: bool) -> Iterator[str]:
    """Yield *program* as reStructuredText; if *single*, without a section around all of it."""
    if not single:
        yield from _title(program.name, "=")
    yield from (f".. program:: {program.name}", "")
    yield from _command(program, program.command)
    for heading, text in program.sections:
        yield f"**{heading}**"
        yield ""
        yield from _text(text)
    for path, command in walk(program.command):
        if path and not command.commands:
            words = " ".join((program.name, *path))
            yield from _title(words, "-")
            yield from (f".. program:: {words}", "")
            yield from _command(program, command)


def _title(text: str, line: str) -> list[str]:
    return [text, line * len(text), ""]


def _command(program: Program, command: Command) -> Iterator[str]:
    yield from _literal("\n".join(command.synopsis))
    yield from _text(command.description)
    for option in command.options:
        if command is program.command or "--help" not in option.names:
            yield from _option(option)
    for argument in command.arguments:
        if argument.required:
            words = argument.help or "one of " + ", ".join(argument.value.choices)
            yield from (f".. option:: {argument.value.metavar}", "", f"   {_inline(words)}", "")
    if command.example:
        yield from ("For example:", "", *_literal(command.example))


def _option(option: Option) -> Iterator[str]:
    value = ""
    if option.value:
        metavar = option.value.metavar
        value = f"[={metavar}]" if option.value.optional else f"={metavar}"
    names = ", ".join(
        f"{name} {value[1:]}"
        if value.startswith("=") and name.startswith("--")
        else f"{name}{value}"
        for name in option.names
    )
    yield from (f".. option:: {names}", "", f"   {_inline(option.help)}", "")


def _text(text: str) -> Iterator[str]:
    for block in blocks(text):
        yield from _literal(block.text) if block.literal else [_inline(block.text), ""]


def _literal(text: str) -> list[str]:
    return [".. code-block:: none", "", *(f"   {line}" for line in text.splitlines()), ""]


def _inline(text: str) -> str:
    """Return a paragraph whose code is in backticks, for reStructuredText."""
    parts = re.split(r"`([^`]+)`", text)
    return "".join(
        f"``{part}``" if i % 2 else re.sub(r"([\\*_|`])", r"\\\1", part)
        for i, part in enumerate(parts)
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("programs", Programs)
    return {"parallel_read_safe": True}
