# SPDX-License-Identifier: Apache-2.0
"""A schema refuses the same values whatever it has validated before."""

from __future__ import annotations

import pytest

from gsaas import exceptions
from gsaas.api import validation
from gsaas.api.validation import Schema

NUMBER = {"type": "integer", "minimum": 1, "maximum": 99}
COUNT = {"type": "object", "properties": {"count": NUMBER}}


@pytest.mark.parametrize("wrong", [True, 1.0, "1", 0, None])
def test_a_value_that_resembles_a_cached_one_is_validated(wrong):
    schema = Schema(COUNT)
    for _ in range(2):
        schema.check({"count": 1})
        with pytest.raises(exceptions.BadRequest, match="count is"):
            schema.check({"count": wrong})


def test_an_invalid_value_is_refused_again():
    schema = Schema(COUNT)
    for _ in range(2):
        with pytest.raises(exceptions.BadRequest):
            schema.check({"count": 0})


def test_the_cache_does_not_exceed_its_size(monkeypatch):
    monkeypatch.setattr(validation, "CACHE_SIZE", 10)
    schema = Schema(COUNT)
    for count in range(1, 26):
        schema.check({"count": count})
    schema.check({"count": 1, "note": "x" * validation.MAX_CACHED_LENGTH})
    assert len(schema._valid) <= 10
    assert max(map(len, schema._valid)) <= validation.MAX_CACHED_LENGTH
