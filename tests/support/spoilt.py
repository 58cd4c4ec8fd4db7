# SPDX-License-Identifier: Apache-2.0
"""Values of JSON of which something is not as it should be, for Hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(10**300, 10**301)
    | st.floats()
    | st.text(st.characters(exclude_categories=[]), max_size=30)
    | st.just("x" * 5000),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=6,
)
"""Anything that Python reads as JSON: also NaN, infinity, halves of surrogate pairs and numbers of any size."""


def spoil(data: st.DataObject, value: Any) -> Any:
    """Return *value*, of JSON, with something in it replaced by anything, or without one of its names."""
    if isinstance(value, dict) and value and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(value)))
        if data.draw(st.integers(0, 4)) == 0:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: spoil(data, value[key])}
    if isinstance(value, list) and value and data.draw(st.booleans()):
        index = data.draw(st.integers(0, len(value) - 1))
        return [*value[:index], spoil(data, value[index]), *value[index + 1 :]]
    return data.draw(JSON)
