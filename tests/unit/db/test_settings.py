# SPDX-License-Identifier: Apache-2.0
"""A setting goes before the configuration until it is undone."""

from __future__ import annotations

import pytest

from gsaas.db import settings
from gsaas.db.database import Database
from gsaas.db.models import SettingRow


def put(database: Database, value: object, by: str | None = None) -> None:
    with database.write() as session:
        settings.put(session, "some", value, by)


def get(database: Database) -> object:
    with database.read() as session:
        return settings.get(session, "some")


def test_what_was_never_set_is_nothing(database: Database):
    assert get(database) is None


@pytest.mark.parametrize("value", [5, 2.5, "least-load-fit", False, ["a", "b"]])
def test_a_value_is_kept_as_it_was_given(database: Database, value: object):
    put(database, value)
    assert get(database) == value


def test_the_last_one_counts_and_is_known_by_who_set_it(database: Database):
    put(database, 5, "one")
    with database.read() as session:
        first = session.get_one(SettingRow, "some")
    put(database, 6, "other")
    with database.read() as session:
        second = session.get_one(SettingRow, "some")
    assert (second.value, second.updated_by) == (6, "other")
    assert second.updated_at >= first.updated_at


def test_to_set_nothing_is_to_undo(database: Database):
    put(database, None)
    put(database, 5)
    put(database, None)
    assert get(database) is None
