"""Plain tables for people: values in, text out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

INDENT = "  "


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as they must be; those that hold only numbers are aligned to the right."""
    body = [[cell(value) for value in row] for row in rows]
    columns = list(zip(headings, *body, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numeric = [len(c) > 1 and all(map(_is_number, c[1:])) for c in columns]

    def line(values: Sequence[str]) -> str:
        aligned = (
            value.rjust(width) if right else value.ljust(width)
            for value, width, right in zip(values, widths, numeric, strict=True)
        )
        return (INDENT + "  ".join(aligned)).rstrip()

    return "\n".join(line(row) for row in [list(headings), *body])


def facts(pairs: Iterable[tuple[str, object]]) -> str:
    """Names and values, one a line."""
    pairs = [(name, cell(value)) for name, value in pairs]
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{INDENT}{name:<{width}}  {value}".rstrip() for name, value in pairs)


def cell(value: object) -> str:
    """One value. Other people's names may hold anything; nothing may steer the terminal."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "".join(c if c.isprintable() else "�" for c in str(value))


def _is_number(text: str) -> bool:
    return text == "-" or text.removeprefix("-").replace(".", "", 1).isdecimal()
