# SPDX-License-Identifier: Apache-2.0
"""A history: the requests that a simulation replays, each with its arrival time and its duration.

The file format is CSV with a header line and one request per line. Times are in seconds:

    arrival,duration,count,mode,memory_mb,project,model,capability,locality,hosts,host,consumer_host
    0,3600,2,shared,2048,physics,,,,,,
    12.5,600,1,exclusive,,chemistry,H200,9.0,,,,

The first four columns are necessary. Those after project are what a request to the API may require; an empty field
requires nothing. An apostrophe before a text that a spreadsheet would take for a formula is not part of it. Any file
may be packed with gzip.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TextIO, cast

from gsaas.objects.gpu import EXCLUSIVE, SHARED, parse_capability
from gsaas.objects.request import ANY, Request
from gsaasclient import spreadsheets

REQUIREMENTS = ("model", "capability", "locality", "hosts", "host", "consumer_host")
TEXTS = ("project", *REQUIREMENTS)
MOST_SECONDS = 1e11
"""Three thousand years: more is a mistake, and more than a date can be."""
MOST_NUMBER = 1_000_000_000
GZIP = b"\x1f\x8b"
"""How a file begins that gzip has packed (RFC 1952, section 2.3.1)."""
COLUMNS = ("arrival", "duration", "count", "mode", "memory_mb", *TEXTS)


MORE = "\n"
"""Where the reader puts what has no column: no file has a column of this name."""


class HistoryError(Exception):
    """A history cannot be read. The message says where in the file, and why."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One request of a history: *count* cGPUs for *duration* seconds from when they are granted.

    *arrival* is in seconds since the history's beginning. *memory_mb* is the MiB of each cGPU in shared mode, and None
    in exclusive mode.
    """

    id: int
    arrival: float
    duration: float
    count: int
    mode: str
    memory_mb: int | None
    project: str = ""
    model: str = ""
    """A text that the model of its GPUs must contain; empty: any model. The fields that follow are alike."""
    capability: str = ""
    locality: str = ""
    hosts: str = ""
    host: str = ""
    consumer_host: str = ""

    def request(self) -> Request:
        """Return what it asks GPGPUMS for. Raises `ValueError` if its fields contradict each other."""
        return Request(
            self.count,
            self.mode,
            self.memory_mb,
            self.locality or ANY,
            gpu_model=self.model or None,
            compute_capability=parse_capability(self.capability) if self.capability else None,
            hosts=self.hosts or ANY,
            host=self.host or None,
            consumer_host=self.consumer_host or None,
        )


def read(path: Path) -> list[Demand]:
    """Return the requests of a CSV file, sorted by arrival.

    Raises `HistoryError` if the file cannot be read, lacks a column, has an invalid line, or no request.
    """
    rows = _rows(path, csv.DictReader(utf8_lines(path), restkey=MORE, strict=True))
    if not rows:
        raise HistoryError(f"{path} contains no request")
    return sort_by_arrival(rows)


def write(file: TextIO, demands: Iterable[Demand]) -> None:
    """Write requests in the format that `read` reads."""
    spreadsheets.write(file, [COLUMNS, *map(_row, demands)])


def _row(demand: Demand) -> list[object]:
    return [
        _exact(demand.arrival),
        _exact(demand.duration),
        demand.count,
        demand.mode,
        demand.memory_mb if demand.memory_mb is not None else "",
        *(spreadsheets.cell(getattr(demand, name)) for name in TEXTS),
    ]


def lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text, with their ends, without a byte-order mark; the file may be packed with gzip.

    Bytes that are not UTF-8, as in comments of old logs, become surrogates (PEP 383). Raises `HistoryError` if the file
    cannot be read.
    """
    try:
        with path.open("rb") as file:
            packed = file.peek(len(GZIP)).startswith(GZIP)
            content = cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if packed else file
            yield from io.TextIOWrapper(content, "utf-8-sig", "surrogateescape", newline="")
    except (OSError, EOFError, zlib.error) as error:
        raise HistoryError(f"{path} cannot be read: {error}") from error


def utf8_lines(path: Path) -> Iterator[str]:
    """Yield what `lines` does. Raises `HistoryError` also for a line that is not UTF-8."""
    for number, line in enumerate(lines(path), 1):
        try:
            line.encode()
        except UnicodeEncodeError:
            raise HistoryError(
                f"{path}, line {number} is not in UTF-8; iconv -f latin1 -t utf-8 converts it, if it is in Latin-1"
            ) from None
        yield line


def sort_by_arrival(demands: Iterable[Demand]) -> list[Demand]:
    """Return the requests sorted by arrival, with new ids that count from 0."""
    ordered = sorted(demands, key=lambda demand: (demand.arrival, demand.id))
    return [replace(demand, id=number) for number, demand in enumerate(ordered)]


def span(demands: Sequence[Demand]) -> float:
    """Return the seconds from the first arrival to the last end, if no request had to wait; 0 without requests."""
    if not demands:
        return 0.0
    end = max(demand.arrival + demand.duration for demand in demands)
    return end - min(demand.arrival for demand in demands)


def _exact(seconds: float) -> str:
    """Return a number of seconds with all the digits that it needs to be read again as it is."""
    return repr(float(seconds)).removesuffix(".0")


def _rows(path: Path, reader: csv.DictReader[str]) -> list[Demand]:
    try:
        missing = set(COLUMNS[:4]) - set(reader.fieldnames or ())
        if missing:
            raise HistoryError(f"{path} has no column {', '.join(sorted(missing))}")
        return [_demand(path, reader.line_num, row) for row in reader]
    except csv.Error as error:
        # The reader counts the lines that it could read.
        raise HistoryError(f"{path}, line {reader.line_num + 1}: {error}") from error


def _demand(path: Path, line: int, row: dict[str, str]) -> Demand:
    where = f"{path}, line {line}"
    if MORE in row:
        raise HistoryError(f"{where} has more columns than the first line")
    memory = row.get("memory_mb") or None
    demand = Demand(
        line,
        seconds(row["arrival"], f"{where}, column arrival"),
        seconds(row["duration"], f"{where}, column duration"),
        whole_number(row["count"], f"{where}, column count"),
        row["mode"] or "",
        None if memory is None else whole_number(memory, f"{where}, column memory_mb"),
        **{name: spreadsheets.text(row.get(name) or "") for name in TEXTS},
    )
    check(demand, where)
    return demand


def seconds(text: str | float | None, where: str) -> float:
    """Return the number of seconds in *text*. Raises `HistoryError`, which begins with *where*, if there is none."""
    try:
        number = float("" if text is None else text)
    except ValueError:
        raise HistoryError(f"{where}: {text or ''!r} is not a number") from None
    if not -MOST_SECONDS <= number <= MOST_SECONDS:  # so NaN, too, which is neither
        raise HistoryError(f"{where}: {text} is not a number of seconds up to {MOST_SECONDS:g}")
    return number


def whole_number(text: str | float | None, where: str) -> int:
    """Return the whole number in *text*, which may be written as 8.0, as programs do whose columns have empty fields.

    Raises `HistoryError`, which begins with *where*, if there is none.
    """
    try:
        number = float("" if text is None else text)
        whole = number.is_integer()
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole:
        raise HistoryError(f"{where}: {text or ''!r} is not a whole number")
    if not -MOST_NUMBER <= number <= MOST_NUMBER:
        raise HistoryError(f"{where}: {text} is more than {MOST_NUMBER:,}")
    return int(number)


def check(demand: Demand, where: str) -> None:
    """Raise `HistoryError`, which begins with *where*, if *demand* is not a valid request."""
    if problem := _find_problem(demand):
        raise HistoryError(f"{where}{problem}")


def _find_problem(demand: Demand) -> str | None:
    """Return which column of *demand* is wrong, and why; None if it is a valid request."""
    if demand.mode not in (SHARED, EXCLUSIVE):
        return f", column mode: it is {SHARED} or {EXCLUSIVE}, not {demand.mode!r}"
    if (demand.mode == SHARED) != (demand.memory_mb is not None):
        return ", column memory_mb: it is given in shared mode, and only there"
    if demand.memory_mb is not None and demand.memory_mb < 1:
        return f", column memory_mb: a cGPU cannot have {demand.memory_mb} MiB"
    if demand.count < 1:
        return f", column count: {demand.count} cGPUs cannot be asked for"
    if demand.arrival < 0:
        return ", column arrival: it is not before 0"
    if demand.duration <= 0:
        return ", column duration: it is more than 0 seconds"
    for column in ("capability", "locality", "hosts"):
        try:
            replace(_PLAIN, **{column: getattr(demand, column)}).request()
        except ValueError as error:
            return f", column {column}: {error}"
    try:
        demand.request()
    except ValueError as error:
        return f": {error}"
    return None


_PLAIN = Demand(0, 0, 1, 1, EXCLUSIVE, None)
