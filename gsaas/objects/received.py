# SPDX-License-Identifier: Apache-2.0
"""What hosts report, judged value by value. Pure: no I/O.

A host may lie, and an honest one may have odd values: a driver that returns garbage, a program whose name is no text.
So each value is judged alone. What is not valid is left out and counted, and the rest of the report stands: a report is
also the heartbeat of its host, and one odd value must not take all GPUs of a host out of service.

What is believed has a bound: a number is finite and in its range, and a text is one printable line.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from gsaas.objects.printable import one_line

T = TypeVar("T")

MAX_INTEGER = 2**31 - 1
"""The largest value of an integer column."""
MAX_TEXT = 1024
"""Characters that are kept of a reason or a problem."""
MAX_PROBLEMS = 100
"""Problems that are kept of one report."""
INVALID = (ValueError, TypeError, KeyError, RecursionError)
"""What the checks below raise; the last for values that contain others very deeply."""


class LeftOut:
    """Counts what is left out of one report, and knows what the first of it was."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""

    def note(self, what: str, error: Exception) -> None:
        """Count *what*, which is not valid because of *error*."""
        self.count += 1
        if not self.first:
            why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            self.first = one_line(f"{what}: {why}", 300)

    def optional(self, what: str, check: Callable[..., T], value: Any, *more: Any) -> T | None:
        """Return what *check* returns for *value* and *more*; None without a value, or if it is not valid."""
        if value is None:
            return None
        try:
            return check(value, *more)
        except INVALID as error:
            self.note(what, error)
            return None

    def items(self, what: str, check: Callable[[Any], T], found: Any, most: int) -> list[T]:
        """Return what *check* returns for each valid item of the list *found*, of which *most* are looked at."""
        if not isinstance(found, list | tuple):
            self.note(what, TypeError(f"{quoted(found)} is not a list"))
            return []
        checked = []
        for number, item in enumerate(found[:most]):
            try:
                checked.append(check(item))
            except INVALID as error:
                self.note(f"{what}, number {number}", error)
        self._note_surplus(what, len(found), most)
        return checked

    def named(
        self, what: str, check: Callable[[Any], T], found: Any, name: re.Pattern[str], most: int
    ) -> dict[str, T]:
        """Return what *check* returns for each valid value of the mapping *found*, of which *most* are looked at.

        The name of a value has to match *name*.
        """
        if not isinstance(found, Mapping):
            self.note(what, TypeError(f"{quoted(found)} is not an object"))
            return {}
        checked = {}
        for key, value in islice(found.items(), most):
            try:
                checked[matching(key, name)] = check(value)
            except INVALID as error:
                self.note(f"{what}, {quoted(key)}", error)
        self._note_surplus(what, len(found), most)
        return checked

    def problems(self, found: Any) -> list[str]:
        """Return the problems that a host reports, after what was left out up to now, as `shown` has them."""
        reported = self.items("problems", text, found, 2**16)
        return shown([*self.told(), *reported])

    def told(self) -> list[str]:
        """Return what was left out, as a problem for operators; empty if that is nothing."""
        if not self.count:
            return []
        values, verb = ("1 value", "is") if self.count == 1 else (f"{self.count} values", "are")
        return [
            f"{values} of its report {verb} not valid and left out; the first: {self.first}. If this lasts, update "
            "GSaaS and the GPUs' driver on this host"
        ]

    def _note_surplus(self, what: str, count: int, most: int) -> None:
        if count > most:
            self.note(what, ValueError(f"{count} are more than {most}"))


class Fields:
    """The values of *data*, an object of a report, which may be left out one by one; *what* names it for operators."""

    def __init__(self, data: Mapping[str, Any], what: str, left_out: LeftOut) -> None:
        self._data, self._what, self._left_out = data, what, left_out

    def optional(self, key: str, check: Callable[..., T], *more: Any) -> T | None:
        """Return what *check* returns for the value of *key* and *more*; None without one, or if it is not valid."""
        value = self._data.get(key)
        if value is None:
            return None
        try:
            return check(value, *more)
        except INVALID as error:
            # Only now is a text made: in reports of a thousand GPUs most values are valid.
            self._left_out.note(f"{self._what}, {key}", error)
            return None


def shown(problems: Sequence[str]) -> list[str]:
    """Return the first *problems*, each cut to what may be shown, and how many more there are.

    What it has returned, it returns again as it is: monitor and engine both cut the problems of a report.
    """
    if len(problems) <= MAX_PROBLEMS + 1:
        return [one_line(problem, MAX_TEXT) for problem in problems]
    lines = [one_line(problem, MAX_TEXT) for problem in problems[:MAX_PROBLEMS]]
    return [*lines, f"and {len(problems) - MAX_PROBLEMS} more problems"]


def text(value: Any, longest: int = MAX_TEXT) -> str:
    """Return the beginning of *value* as it may be logged and shown."""
    if not isinstance(value, str):
        raise TypeError(f"{quoted(value)} is not a text")
    return one_line(value, longest)


def name(value: Any, longest: int = 255) -> str:
    """Return the beginning of *value*, which is not empty, as it may be logged and shown."""
    if not (said := text(value, longest)).strip():
        raise ValueError("it is empty")
    return said


def matching(value: Any, pattern: re.Pattern[str]) -> str:
    """Return *value*, which matches *pattern* as a whole."""
    if not isinstance(value, str):
        raise TypeError(f"{quoted(value)} is not a text")
    if not pattern.fullmatch(value):
        raise ValueError(f"{quoted(value)} does not match {pattern.pattern}")
    return value


def number(value: Any, least: float, most: float) -> float:
    """Return *value*, which is a number from *least* to *most*."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{quoted(value)} is not a number")
    if not least <= value <= most:  # NaN fails this comparison, too
        raise ValueError(f"{quoted(value)} is not between {least} and {most}")
    return value


def integer(value: Any, least: int, most: int) -> int:
    """Return *value*, which is a whole number from *least* to *most*."""
    if not isinstance(value, int):
        raise TypeError(f"{quoted(value)} is not an integer")
    return int(number(value, least, most))


def boolean(value: Any) -> bool:
    """Return *value*, which is true or false."""
    if not isinstance(value, bool):
        raise TypeError(f"{quoted(value)} is neither true nor false")
    return value


def mapping(value: Any) -> Mapping[str, Any]:
    """Return *value*, which is an object of JSON."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{quoted(value)} is not an object")
    return value


def timestamp(value: Any) -> datetime.datetime:
    """Return the time that *value* describes in ISO 8601, UTC without a time zone, in years that databases have."""
    if not isinstance(value, str) or len(value) > 32:
        raise TypeError(f"{quoted(value)} is not a time")
    found = datetime.datetime.fromisoformat(value)
    if found.tzinfo is not None:
        raise ValueError(f"{value} has a time zone; times are UTC without one")
    if not 1970 <= found.year < 9999:
        raise ValueError(f"{value} is not a time of this age")
    return found


def quoted(value: Any) -> str:
    """Return the beginning of *value* for a message, which is logged; only its type if Python cannot show it."""
    try:
        return one_line(repr(value), 60)
    except (ValueError, RecursionError):
        return f"a value of type {type(value).__name__}"
