# SPDX-License-Identifier: Apache-2.0
"""Cells of CSV files, which people open with spreadsheets: a text that others chose must not be a formula there.

A formula calls programs, and sends what is in other cells elsewhere. An apostrophe before it makes it a text; most
spreadsheets do not show that. Numbers are left as they are, also negative ones.
"""

from __future__ import annotations

import csv
import io

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\0", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""With what a formula begins. Spreadsheets remove spaces of some kinds before it, and know wide characters, too."""


def write(file: TextIO, rows: Iterable[Iterable[object]]) -> None:
    """Write rows of cells as lines of CSV. A carriage return in a cell is within quotes, or it would begin a line."""
    for row in rows:
        line = io.StringIO()
        csv.writer(line, lineterminator="\r\n").writerow(row)
        file.write(line.getvalue().removesuffix("\r\n") + "\n")


def cell(value: object) -> object:
    """Return a text that no spreadsheet takes for a formula; anything else as it is."""
    return f"'{value}" if isinstance(value, str) and _may_be_formula(value) else value


def text(written: str) -> str:
    """Return the text of which `cell` has made *written*."""
    return written[1:] if written[:1] == "'" and _may_be_formula(written) else written


def _may_be_formula(value: str) -> bool:
    # Apostrophes before one get another, so that `text` knows which is of `cell`.
    return value.lstrip("'").startswith(_FORMULA)
