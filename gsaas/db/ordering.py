# SPDX-License-Identifier: Apache-2.0
"""Orders of lists, and the condition with which a page begins after a given row of them.

    order = Order((SortKey(LeaseRow.name), SortKey(LeaseRow.id)))
    query = order.page(select(LeaseRow.id), limit=10, after=("training", "5f0c…"))

1. The last key of an order is unique, so that no two rows are equal: a page neither skips rows nor repeats them.
2. Rows without a value come last, in both directions. Databases differ in that, and none compares NULL.
3. A page is found by the values of the row before it, never by counting rows: its cost does not grow with its number
   where an index has the order.

oslo.db has such a function, `paginate_query`. It loses the rows without a value in descending order, and repeats rows
if the last row of a page has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, false, literal, or_
from sqlalchemy.orm import Session

from gsaas import exceptions


@dataclass(frozen=True)
class SortKey:
    """A column by which rows are sorted."""

    column: Any
    descending: bool = False

    @property
    def is_nullable(self) -> bool:
        """Return whether rows may have no value in the column."""
        return bool(self.column.nullable)

    def clauses(self) -> list[ColumnElement[Any]]:
        """Return the terms of ORDER BY."""
        ordered = self.column.desc() if self.descending else self.column.asc()
        return [self.column.is_(None), ordered] if self.is_nullable else [ordered]

    def equal(self, value: Any) -> ColumnElement[bool]:
        """Return the condition for rows whose value is *value*."""
        condition: ColumnElement[bool] = (
            self.column.is_(None) if value is None else self.column == self._literal(value)
        )
        return condition

    def later(self, value: Any, *, or_equal: bool = False) -> ColumnElement[bool]:
        """Return the condition for rows whose value comes after *value*; with *or_equal* also those that have it."""
        if value is None:
            return self.equal(None) if or_equal else false()
        ours = self._literal(value)
        if self.descending:
            later = self.column <= ours if or_equal else self.column < ours
        else:
            later = self.column >= ours if or_equal else self.column > ours
        return or_(later, self.column.is_(None)) if self.is_nullable else later

    def _literal(self, value: Any) -> ColumnElement[Any]:
        # A parameter with the type of the column: SQLAlchemy refuses to compare with a plain True or False.
        return literal(value, self.column.type)


class Order:
    """An order of rows by *keys*, the last of which is unique."""

    def __init__(self, keys: Sequence[SortKey]) -> None:
        self.keys = tuple(keys)

    def page(self, query: Select[Any], limit: int, after: Sequence[Any] | None = None) -> Any:
        """Return *query* for up to *limit* rows in this order; *after* has the keys' values in the row before them."""
        if after is not None:
            query = query.where(self._after(after))
        terms = [term for key in self.keys for term in key.clauses()]
        return query.order_by(None).order_by(*terms).limit(limit)

    def _after(self, values: Sequence[Any]) -> ColumnElement[bool]:
        alternatives = [
            and_(
                *(self.keys[before].equal(values[before]) for before in range(position)),
                key.later(values[position]),
            )
            for position, key in enumerate(self.keys)
        ]
        # The first condition follows from the second; it tells an index where to begin.
        return and_(self.keys[0].later(values[0], or_equal=True), or_(*alternatives))


def order_of(
    columns: Mapping[str, Any],
    unique: str,
    sort: Sequence[tuple[str, bool]],
    default: Sequence[tuple[str, bool]] = (),
) -> Order:
    """Return the order that *sort* asks for: pairs of a name in *columns*, and whether it is descending.

    Without any, it is the *default*. The column *unique* breaks ties, in the direction of the last key, so that an
    index of both can be read backwards.
    """
    wanted = list(sort or default)
    if all(name != unique for name, _ in wanted):
        wanted.append((unique, wanted[-1][1] if wanted else False))
    return Order([SortKey(columns[name], descending) for name, descending in wanted])


def row_values(
    session: Session, model: type[Any], order: Order, marker: str, noun: str
) -> Sequence[Any]:
    """Return the keys' values in the row of *model* whose unique key is *marker*, for `Order.page`.

    The order by that key alone needs no such row. Raises `BadRequest`, which names the *noun*, if there is none.
    """
    if len(order.keys) == 1:
        return [marker]
    row = session.get(model, marker)
    if row is None:
        raise exceptions.BadRequest(reason=f"the marker {marker} is not a {noun}")
    return [getattr(row, key.column.key) for key in order.keys]
