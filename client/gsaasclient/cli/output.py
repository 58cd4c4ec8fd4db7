# SPDX-License-Identifier: Apache-2.0
"""Where output goes: answers to standard output, in the format asked for; progress and notes to standard error."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence

from gsaasclient.cli import tables
from gsaasclient.cli.standard_files import Writing, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from types import SimpleNamespace
    from typing import Any, TextIO

    from gsaasclient.cli.columns import Column

    Options = SimpleNamespace | argparse.Namespace

ERASE_LINE = "\r\x1b[K"
DOCUMENT_FORMATS = {"json", "yaml"}
"""Formats that print the API's own answer, unless columns are picked."""


def print_list(
    args: Options,
    columns: Sequence[Column],
    resources: Iterable[Any],
    document: Any,
    text: Callable[[], str] | None = None,
) -> None:
    """Print *resources* in the format `args.f`, one row each.

    *columns* are the selected ones. Unless `args.c` picks columns, JSON and YAML print *document*, and a table is
    replaced by what *text* returns, if it is given.
    """
    with Writing():
        if args.f in DOCUMENT_FORMATS:
            if args.c:
                document = [
                    {column.name: column.value(each) for column in columns} for each in resources
                ]
            print_document(args.f, document)
        elif args.f == "csv":
            _print_csv(columns, resources)
        elif args.f == "value":
            for each in resources:
                print(" ".join(_plain(column.value(each)) for column in columns))
        elif args.c:
            print(table_of(columns, resources))
        else:
            print(brief_table(columns, resources) if text is None else text())


def print_resource(
    args: Options,
    columns: Sequence[Column],
    resource: Any,
    document: Any,
    text: Callable[[], str],
) -> None:
    """Print one *resource* in the format `args.f`: as values, one line each column; else as `print_list` does."""
    with Writing():
        if args.f in DOCUMENT_FORMATS:
            if args.c:
                document = {column.name: column.value(resource) for column in columns}
            print_document(args.f, document)
        elif args.f == "csv":
            _print_csv(columns, [resource])
        elif args.f == "value":
            for column in columns:
                print(_plain(column.value(resource)))
        elif args.c:
            print(tables.facts([(column.heading, column.text(resource)) for column in columns]))
        else:
            print(text())


def brief_table(columns: Sequence[Column], resources: Iterable[Any]) -> str:
    """Return the table of a list, with one row for each resource; it fits in 80 columns of a terminal."""
    return tables.fitted(
        [column.heading for column in columns],
        [[column.brief(each) for column in columns] for each in resources],
        [column.least for column in columns],
    )


def table_of(columns: Sequence[Column], resources: Iterable[Any]) -> str:
    """Return a table with one row for each resource, and everything in full."""
    return tables.table(
        [column.heading for column in columns],
        [[column.text(each) for column in columns] for each in resources],
    )


def print_document(format: str, document: Any) -> None:
    """Print *document*, which is JSON data, as `json` or as `yaml`."""
    with Writing():
        if format == "yaml":
            # Imported here, because it takes longer than the rest of a command.
            import yaml

            yaml.safe_dump(document, sys.stdout, sort_keys=False, allow_unicode=True)
        else:
            print(json.dumps(document, indent=2, ensure_ascii=False))


def print_text(text: str) -> None:
    """Print *text* as a line, or lines."""
    with Writing():
        print(text)


def print_note(sentence: str) -> None:
    """Print a remark that is not part of the answer; it may have names that other users chose."""
    say(f"note: {tables.printable(sentence)}\n")


def print_error(sentence: str) -> None:
    """Print an error message."""
    say(f"gsaas: {sentence}\n")


def _print_csv(columns: Sequence[Column], resources: Iterable[Any]) -> None:
    from gsaasclient import spreadsheets

    def cell(value: Any) -> object:
        # Before numbers become text, of which a negative one begins as a formula does.
        return spreadsheets.cell(value) if isinstance(value, str) else _scalar(value)

    rows = ([cell(column.value(each)) for column in columns] for each in resources)
    spreadsheets.write(sys.stdout, [[column.name for column in columns], *rows])


def _plain(value: Any) -> str:
    # A line end in a name must not look like the next value.
    return tables.printable(_scalar(value))


def _scalar(value: Any) -> str:
    """Return *value* as text: nothing for None, and JSON for what is neither a string nor a number."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class Progress:
    """The progress of a lease as one line on standard error, rewritten in place.

    On a stream that is not a terminal, only details are printed, each change as a line of its own.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._interactive = (stream or sys.stderr).isatty()
        self._started_at = time.monotonic()
        self._statuses: list[str] = []
        self._detail = ""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._write(ERASE_LINE)

    @property
    def interactive(self) -> bool:
        """Whether the progress is shown on a terminal."""
        return self._interactive

    def show(self, status: str, detail: str = "") -> None:
        """Add *status* if it differs from the last one, and show the seconds since the beginning.

        *detail* describes the current status.
        """
        if self._statuses[-1:] != [status]:
            self._statuses.append(status)
        elapsed = time.monotonic() - self._started_at
        suffix = f" ({detail})" if detail else ""
        self._write(f"{ERASE_LINE}{' → '.join(self._statuses)}{suffix}  {elapsed:.1f} s")
        if detail and not self._interactive and detail != self._detail:
            say(f"{status}: {detail}\n", self._stream)
        self._detail = detail

    def _write(self, text: str) -> None:
        if self._interactive:
            say(text, self._stream)
