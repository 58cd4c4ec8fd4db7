"""A schema says no to the same values whatever it has seen before."""

from __future__ import annotations

import pytest

from gsaas import exceptions
from gsaas.api import validation
from gsaas.api.validation import Schema

NUMBER = {"type": "integer", "minimum": 1, "maximum": 99}
COUNT = {"type": "object", "properties": {"count": NUMBER}}


@pytest.mark.parametrize("wrong", [True, 1.0, "1", 0, None])
def test_what_looks_like_a_value_that_was_right_is_still_looked_at(wrong):
    schema = Schema(COUNT)
    for _ in range(2):
        schema.check({"count": 1})
        with pytest.raises(exceptions.BadRequest, match="count is"):
            schema.check({"count": wrong})


def test_what_was_wrong_stays_wrong():
    schema = Schema(COUNT)
    for _ in range(2):
        with pytest.raises(exceptions.BadRequest):
            schema.check({"count": 0})


def test_no_more_is_remembered_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(validation, "CACHE_SIZE", 10)
    schema = Schema(COUNT)
    for count in range(1, 26):
        schema.check({"count": count})
    schema.check({"count": 1, "note": "x" * validation.MAX_CACHED_LENGTH})
    assert len(schema._valid) <= 10
    assert max(map(len, schema._valid)) <= validation.MAX_CACHED_LENGTH
