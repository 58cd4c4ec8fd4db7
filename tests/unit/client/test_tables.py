# SPDX-License-Identifier: Apache-2.0
"""Tables are aligned by the width of characters, and nothing in them controls the terminal."""

from __future__ import annotations

import pytest
from wcwidth import wcswidth

from gsaasclient.cli.tables import cell, clip, facts, fitted, table


def test_text_is_left_aligned_numbers_right_and_no_spaces_trail():
    assert table(("name", "MiB", "why"), [("a", 2048, None), ("longer", 7, "")]) == (
        "  name     MiB  why\n  a       2048    -\n  longer     7    -"
    )


def test_a_table_without_rows_has_headings():
    assert table(("name", "MiB"), []) == "  name  MiB"


def test_wide_and_combining_characters_line_up():
    rows = [("名前", 1), ("e\u0301", 20), ("🚀", 300)]
    assert table(("name", "MiB"), rows) == (
        "  name  MiB\n  名前    1\n  e\u0301      20\n  🚀    300"
    )
    assert facts([("名", "x"), ("name", "y")]) == "  名    x\n  name  y"


def test_headings_may_repeat():
    assert table(("", "of", ""), [("a", 1, "b")]) == "     of\n  a   1  b"


@pytest.mark.parametrize(
    ("text", "clipped"),
    [
        ("abcdef", "abcd"),
        ("ab", "ab  "),
        ("名前x", "名前"),
        ("a名前", "a名 "),
        ("e\u0301", "e\u0301   "),
    ],
)
def test_a_line_is_clipped_to_columns_of_the_terminal(text, clipped):
    assert clip(text, 4, fill=True) == clipped
    assert clip(text, 4) == clipped.rstrip()


def test_a_table_that_is_too_wide_is_fitted_by_shortening_what_may_be_shortened():
    rows = [("名前" * 20, "b" * 30, "c" * 20), ("a", "b", "c")]
    lines = fitted(("name", "rule", "kept"), rows, (6, 8, None)).splitlines()
    assert [line.split() for line in lines] == [
        ["name", "rule", "kept"],
        ["名前" * 6 + "…", "b" * 27 + "…", "c" * 20],
        ["a", "b", "c"],
    ]
    assert wcswidth(lines[1]) <= 80


def test_a_table_that_fits_is_shortened_nowhere():
    rows = [("a" * 36, "b" * 40)]
    assert fitted(("x", "y"), rows, (1, 1)) == table(("x", "y"), rows)


def test_nothing_is_shortened_below_its_heading():
    lines = fitted(("a heading", "y"), [("a" * 90, "b" * 76)], (1, None)).splitlines()
    assert lines[1].split() == ["a" * 8 + "…", "b" * 76]


def test_facts_are_aligned():
    assert facts([("VM", "x"), ("status", None)]) == "  VM      x\n  status  -"


def test_control_characters_are_replaced():
    assert cell("a\x1b[2Jb\nc") == "a�[2Jb�c"


def test_booleans_are_yes_and_no():
    assert (cell(True), cell(False)) == ("yes", "no")
