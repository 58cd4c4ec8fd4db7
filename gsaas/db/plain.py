"""Rows as plain values, for what everybody waits for.

An object of the mapper notices every change of itself, for a session to write it down. For a lease that is claimed and
released in milliseconds that takes longer than the claim; these have the same names, and know of no session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

from gsaas.db import models


class _Plain(SimpleNamespace):
    """A row of the table of `model`: every column is there, None if nobody has said otherwise."""

    model: ClassVar[type[models.Base]]
    columns: ClassVar[tuple[str, ...]]
    _blank: ClassVar[dict[str, Any]]
    _defaults: ClassVar[tuple[tuple[str, Callable[[], Any]], ...]]

    def __init_subclass__(cls) -> None:
        table = cls.model.__table__
        cls.columns = tuple(table.columns.keys())
        cls._blank = dict.fromkeys(cls.columns)
        cls._defaults = tuple(
            (column.key, _maker(column.default))
            for column in table.columns
            if column.default is not None
        )

    def __init__(self, **columns: Any) -> None:
        super().__init__(**{**self._blank, **columns})

    @classmethod
    def of(cls, row: Sequence[Any]) -> Any:
        """Return what *row* says, which has the columns of the table in their order."""
        plain = cls.__new__(cls)
        plain.__dict__.update(zip(cls.columns, row, strict=True))
        return plain

    def complete(self) -> dict[str, Any]:
        """Give what is None its column's default; return all columns, for an INSERT."""
        known = self.__dict__
        for name, default in self._defaults:
            if known[name] is None:
                known[name] = default()
        return self.values()

    def values(self) -> dict[str, Any]:
        """Return the columns by name, for a statement."""
        known = self.__dict__
        return {name: known[name] for name in self.columns}


def _maker(default: Any) -> Callable[[], Any]:
    return (lambda: default.arg(None)) if default.is_callable else (lambda: default.arg)


class Lease(_Plain):
    """A lease with its *claims*, in their order."""

    model = models.LeaseRow
    claims: list[Claim]

    def __init__(self, **columns: Any) -> None:
        super().__init__(**{"has_server": True, "claims": [], **columns})


class Claim(_Plain):
    """A cGPU of a lease; *gpu* is there once `gsaas.db.leases.locate` has read it."""

    model = models.ClaimRow
    gpu: Gpu


class Gpu(_Plain):
    """A GPU with its *host*."""

    model = models.GpuRow
    host: Host


class Host(_Plain):
    """A host."""

    model = models.HostRow


AnyLease = models.LeaseRow | Lease
"""For who only reads."""
AnyClaim = models.ClaimRow | Claim
