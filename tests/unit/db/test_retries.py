# SPDX-License-Identifier: Apache-2.0
"""No transaction that writes is given up because another one was faster."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from oslo_db import exception as db_exception

import gsaas
from gsaas.db.database import OvertakenError, UncommittedError, retried

SOURCE = Path(gsaas.__file__).parent

OTHERWISE = {
    ("gpgpums/ledger.py", "_commit"): "gsaas.gpgpums.committer tries it again",
    ("gpgpums/reservation_manager.py", "prepare"): "gsaas.gpgpums.committer.retry tries it again",
    ("db/migration.py", "_exclusively"): "nothing else writes; an operator may start it again",
    ("db/database.py", "write"): "it opens the transaction of its caller",
}
"""Functions that open a transaction, and are not decorated with `retried`: why not."""


def transactions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Yield the innermost function around each `with …database.writing()` or `.write()`."""

    def visit(node: ast.AST, function: ast.FunctionDef | None) -> Iterator[ast.FunctionDef]:
        inner = node if isinstance(node, ast.FunctionDef) else function
        if isinstance(node, ast.With) and inner and any(opens(each) for each in node.items):
            yield inner
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inner)

    yield from visit(tree, None)


def opens(item: ast.withitem) -> bool:
    called = item.context_expr.func if isinstance(item.context_expr, ast.Call) else None
    if not isinstance(called, ast.Attribute) or called.attr not in ("writing", "write"):
        return False
    owner = ast.unparse(called.value)
    return owner == "self" or owner.endswith("database")


def is_retried(function: ast.FunctionDef) -> bool:
    return "retried" in map(ast.unparse, function.decorator_list)


@pytest.mark.slow
def test_every_transaction_that_writes_is_tried_again():
    found = {
        (str(path.relative_to(SOURCE)), function.name): is_retried(function)
        for path in SOURCE.rglob("*.py")
        for function in transactions(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert len(found) > 15
    assert {where for where, retried in found.items() if not retried} == OTHERWISE.keys()


@pytest.mark.parametrize("error", [db_exception.DBDeadlock, OvertakenError, UncommittedError])
def test_a_function_whose_transaction_lost_a_race_is_called_again(error: type[Exception]):
    calls: list[int] = []

    @retried
    def act() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise error
        return "done"

    assert act() == "done"
    assert len(calls) == 3


def test_a_connection_that_is_lost_in_the_commit_is_not_tried_again():
    """It is not known whether the transaction is stored."""
    calls: list[int] = []

    @retried
    def act() -> None:
        calls.append(1)
        raise db_exception.DBConnectionError

    with pytest.raises(db_exception.DBConnectionError):
        act()
    assert len(calls) == 1
