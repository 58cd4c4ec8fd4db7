# SPDX-License-Identifier: Apache-2.0
"""What projects used in a period, from the history of leases. The database adds it up: there may be a million rows."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    DateTime,
    Float,
    Null,
    Select,
    case,
    func,
    literal,
    null,
    select,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from gsaas.db.leases import LIVE
from gsaas.db.models import LeaseRow, table_of
from gsaas.objects.prices import hours_by_model
from gsaas.objects.usage import ProjectUsage, Stint, stints

HOUR = 3600.0
"""Seconds."""


class seconds_between(FunctionElement[float]):  # noqa: N801  (SQLAlchemy's functions have such names)
    """The seconds from one time to another, as a number with a fraction: each database has a function of its own."""

    type = Float()
    inherit_cache = True


@compiles(seconds_between, "sqlite")
def _sqlite(element: seconds_between, compiler: SQLCompiler, **more: Any) -> str:
    begin, until = (compiler.process(clause, **more) for clause in element.clauses)
    return f"((julianday({until}) - julianday({begin})) * 86400.0)"


@compiles(seconds_between, "postgresql")
def _postgresql(element: seconds_between, compiler: SQLCompiler, **more: Any) -> str:
    begin, until = (compiler.process(clause, **more) for clause in element.clauses)
    return f"CAST(EXTRACT(EPOCH FROM ({until}) - ({begin})) AS DOUBLE PRECISION)"


@compiles(seconds_between, "mysql")
@compiles(seconds_between, "mariadb")
def _mysql(element: seconds_between, compiler: SQLCompiler, **more: Any) -> str:
    begin, until = (compiler.process(clause, **more) for clause in element.clauses)
    return f"(TIMESTAMPDIFF(MICROSECOND, {begin}, {until}) / 1e6)"


def by_project(
    connection: Connection,
    start: datetime.datetime,
    end: datetime.datetime,
    now: datetime.datetime,
    project_id: str | None = None,
    *,
    by_model: bool = False,
) -> list[ProjectUsage]:
    """Return the usage of one project, or of each, from *start* until *end*, or until *now* if that is earlier (UTC).

    The projects are in the order of their ids; those without usage in the period are left out. To have the hours by
    model, the rows of leases are read: the index that serves the query without has no models.
    """
    end = min(end, now)
    if start >= end:
        return []
    first, last = literal(start, DateTime), literal(end, DateTime)
    begin, until = LeaseRow.claimed_at, LeaseRow.released_at
    since = case((begin > first, begin), else_=first)
    models: ColumnElement[Any] = table_of(LeaseRow).c.claimed_models if by_model else null()
    released = _sums(seconds_between(since, case((until < last, until), else_=last)), models)
    alive = _sums(seconds_between(since, last), models)
    # Two queries, each of which an index serves; one with OR would read every row.
    queries = (
        released.where(until > first, until > begin, begin < last),
        alive.where(LeaseRow.status.in_(LIVE), until.is_(None), begin < last),
    )
    totals: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    hours: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for query in queries:
        if project_id is not None:
            query = query.where(LeaseRow.project_id == project_id)
        for project, text, *sums in connection.execute(query):
            totals[project] = [
                total + float(more) for total, more in zip(totals[project], sums, strict=True)
            ]
            if by_model:
                for model, more in hours_by_model(float(sums[1]) / HOUR, text).items():
                    hours[project][model] += more
    for project, now_uses, stint, length in _before_moves(connection, start, end, project_id):
        totals[project][1] += (stint.gpus - now_uses.gpus) * length * HOUR
        for one, sign in ((stint, 1), (now_uses, -1)) if by_model else ():
            for model, more in hours_by_model(sign * one.gpus * length, one.models).items():
                hours[project][model] += more
    return [
        ProjectUsage(
            project,
            int(leases),
            gpu_seconds / HOUR,
            memory_mb_seconds / HOUR,
            dict(hours.get(project, {})),
        )
        for project, (leases, gpu_seconds, memory_mb_seconds) in sorted(totals.items())
    ]


def _before_moves(
    connection: Connection,
    start: datetime.datetime,
    end: datetime.datetime,
    project_id: str | None,
) -> Iterator[tuple[str, Stint, Stint, float]]:
    """Yield what leases used before moves that changed it: the project, what counts above in its place, and its hours.

    The sums above take each lease as if it had always used what it uses since its last move; few have moved so.
    """
    query = select(
        *(LeaseRow.project_id, LeaseRow.claimed_at, LeaseRow.usage_changed_at),
        *(LeaseRow.claimed_gpus, LeaseRow.claimed_models, LeaseRow.past_usage),
    ).where(LeaseRow.usage_changed_at > start, LeaseRow.claimed_at < end)
    if project_id is not None:
        query = query.where(LeaseRow.project_id == project_id)
    for project, claimed_at, changed_at, gpus, models, past in connection.execute(query):
        for stint, length in stints(past, claimed_at, start, end):
            yield project, Stint(changed_at, gpus, models), stint, length


def _sums(seconds: seconds_between, models: ColumnElement[Any]) -> Select[Any]:
    """Return the query for the sums over the leases of each project, each of which had its GPUs for *seconds*.

    Leases of a project with different *models* have sums of their own.
    """
    sums = func.sum(LeaseRow.claimed_gpus * seconds), func.sum(LeaseRow.claimed_mb * seconds)
    columns: tuple[Any, ...] = (LeaseRow.project_id, models, func.count(), *sums)
    groups = (LeaseRow.project_id,) if isinstance(models, Null) else (LeaseRow.project_id, models)
    return select(*columns).group_by(*groups)
