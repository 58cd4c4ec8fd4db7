# SPDX-License-Identifier: Apache-2.0
"""Plain tables for terminals, as text. Pure: no I/O.

Characters of East Asian scripts and emoji take two columns of a terminal, combining ones none; prettytable knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

INDENT = "  "
WIDTH = 80
"""Columns of a terminal, which the tables of lists fit in."""


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an aligned table without borders; columns with numbers only are aligned to the right.

    Every row has one value for each heading. Headings need not be unique.
    """
    return fitted(headings, rows, [None for _ in headings])


def fitted(
    headings: Sequence[str], rows: Iterable[Sequence[object]], leasts: Sequence[int | None]
) -> str:
    """Return the same table, in at most `WIDTH` columns of a terminal where that is possible.

    *leasts* says of each column to how many columns of the terminal its cells may be shortened, but not below its
    heading; None: not at all.
    """
    body = [[cell(value) for value in row] for row in rows]
    widths = [max(map(width, column)) for column in zip(headings, *body, strict=True)]
    spare = [
        0 if least is None else max(0, wide - max(least, width(heading)))
        for heading, wide, least in zip(headings, widths, leasts, strict=True)
    ]
    excess = sum(widths) + len(widths) * len(INDENT) - WIDTH
    for _ in range(min(excess, sum(spare))):
        most = spare.index(max(spare))
        spare[most] -= 1
        widths[most] -= 1
    body = [list(map(shortened, row, widths)) for row in body]
    columns = zip(*body, strict=True) if body else [() for _ in headings]
    return _align(
        [list(headings), *body],
        ["r" if column and all(map(_is_number, column)) else "l" for column in columns],
    )


def facts(pairs: Iterable[tuple[str, object]]) -> str:
    """Return one line for each name and value, with the values aligned."""
    return _align([[name, cell(value)] for name, value in pairs], ["l", "l"])


def cell(value: object) -> str:
    """Return *value* as the text of one cell.

    Characters that are not printable are replaced: names are chosen by users, and none may control the terminal.
    """
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(str(value))


def printable(text: str) -> str:
    """Return *text* with each control character, line ends included, replaced by U+FFFD."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def width(text: str) -> int:
    """Return how many columns of a terminal *text*, which is printable, takes."""
    if text.isascii():
        return len(text)
    # Imported here, because most commands print no table.
    from wcwidth import wcwidth

    return sum(max(0, wcwidth(character)) for character in text)


def clip(text: str, columns: int, *, fill: bool = False) -> str:
    """Return the beginning of *text* that fits in *columns* of a terminal; with *fill*, padded to that width."""
    if not text.isascii():
        # Imported here, because most commands print no table.
        from wcwidth import wcwidth

        used = 0
        for end, character in enumerate(text):
            width = max(0, wcwidth(character))
            if used + width > columns:
                text = text[:end]
                break
            used += width
        return text + " " * (columns - used) if fill else text
    return text[:columns].ljust(columns) if fill else text[:columns]


def shortened(text: str, columns: int) -> str:
    """Return *text*, or if it takes more *columns* of a terminal its beginning and an ellipsis."""
    return text if clip(text, columns) == text else f"{clip(text, columns - 1)}…"


def _align(lines: Sequence[list[str]], alignments: Sequence[Literal["l", "r"]]) -> str:
    """Return *lines* of cells as columns; the alignment of each column is `l` or `r`."""
    # Imported here, because most commands print no table.
    from prettytable import PrettyTable

    # prettytable wants unique field names, and headings may repeat: so they are a row like any other.
    names = [str(number) for number in range(len(alignments))]
    drawn = PrettyTable(
        names,
        header=False,
        border=False,
        padding_width=0,  # the right side's; a right_padding_width of 0 would be ignored
        left_padding_width=len(INDENT),
    )
    drawn.align.update(zip(names, alignments, strict=True))
    for line in lines:
        drawn.add_row(line)
    return "\n".join(line.rstrip() for line in drawn.get_string().splitlines())


def _is_number(text: str) -> bool:
    return text == "-" or text.removeprefix("-").replace(".", "", 1).isdecimal()
