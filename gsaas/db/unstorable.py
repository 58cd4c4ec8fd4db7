# SPDX-License-Identifier: Apache-2.0
"""Tells whether a database refused a statement because its character set lacks a character of a text.

GSaaS creates its tables with a character set that has all of Unicode. But the connection of MariaDB and MySQL has a
character set of its own, which the URL may name, and a database of PostgreSQL keeps the one it was created with.
"""

from __future__ import annotations

from typing import Any

COMPARISONS = {1267, 3988}
"""MariaDB's and MySQL's ER_CANT_AGGREGATE_2COLLATIONS and ER_CANNOT_CONVERT_STRING: a text is compared with another."""
WRONG_VALUE = 1366
"""Their ER_TRUNCATED_WRONG_VALUE_FOR_FIELD, which is also about numbers."""
SQLSTATES = {"22021", "22P05"}
"""PostgreSQL's character_not_in_repertoire and untranslatable_character."""


def is_unstorable_text(error: Exception) -> bool:
    """Return whether *error*, of oslo.db or SQLAlchemy, means that the database cannot hold a text of the statement."""
    error = getattr(error, "inner_exception", None) or error
    reason = getattr(error, "orig", None)
    if reason is None:
        return False
    number: Any = next(iter(reason.args), None)
    if isinstance(number, int):  # PyMySQL
        is_wrong_text = number == WRONG_VALUE and "string value" in str(reason)
        return is_wrong_text or number in COMPARISONS
    # psycopg; it sends no text with a NUL, for which there is no SQLSTATE
    return getattr(reason, "sqlstate", None) in SQLSTATES or "NUL (0x00)" in str(reason)
