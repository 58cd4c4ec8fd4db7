# SPDX-License-Identifier: Apache-2.0
"""What a command prints of a resource: named columns, of which `-c` picks some."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gsaasclient.cli.parser import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Column:
    """One column of a list, or one field of a single resource.

    name      for `-c`, and in CSV, JSON and YAML; the API's own name where it has one
    heading   in tables; *name* by default
    value     returns the column's value for a resource, as JSON has it; by default the member *name*
    text      returns what a table shows instead of the value, where that differs
    brief     returns what the whole table of a list shows instead of the text, where that differs: `-c` prints the text
    least     to how many columns of a terminal that table may shorten it, if it is wider than 80; None: not at all
    optional  whether it is printed only if `-c` picks it
    """

    def __init__(
        self,
        name: str,
        heading: str | None = None,
        value: Callable[[Any], Any] | None = None,
        *,
        text: Callable[[Any], object] | None = None,
        brief: Callable[[Any], object] | None = None,
        least: int | None = None,
        optional: bool = False,
    ) -> None:
        self.name = name
        self.heading = name if heading is None else heading
        self.value = value or (lambda resource: resource[name])
        self.text = text or self.value
        self.brief = brief or self.text
        self.least = least
        self.optional = optional


SHORT_ID = 8
"""Characters of an id in the table of a list."""


def id_column(name: str, heading: str) -> Column:
    """Return the column of an id, of which the table of a list shows the beginning: commands find it by that."""
    return Column(name, heading, brief=lambda resource: resource[name][:SHORT_ID])


def select(columns: Sequence[Column], names: Sequence[str]) -> list[Column]:
    """Return the columns with these *names* or headings, in the order of *names*; without names, the default ones.

    Upper and lower case are the same. Raises `UsageError` for a name that no column has.
    """
    if not names:
        return [column for column in columns if not column.optional]
    # Names go before headings: the heading of one column may be the name of another.
    known = {column.heading.lower(): column for column in columns}
    known.update((column.name.lower(), column) for column in columns)
    for name in names:
        if name.lower() not in known:
            raise UsageError(f"there is no column {name}; the columns are {_names(columns)}")
    return [known[name.lower()] for name in names]


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(column.name for column in columns)
