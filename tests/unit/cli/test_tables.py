"""Tables are aligned, and nothing in them steers the terminal."""

from __future__ import annotations

import pytest

from gsaas.cli.tables import cell, clip, facts, table


def test_words_go_left_numbers_right_and_nothing_trails():
    assert table(("name", "MiB", "why"), [("a", 2048, None), ("longer", 7, "")]) == (
        "  name     MiB  why\n  a       2048    -\n  longer     7    -"
    )


def test_a_table_without_rows_has_its_headings():
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


def test_facts_are_aligned():
    assert facts([("VM", "x"), ("status", None)]) == "  VM      x\n  status  -"


def test_what_others_named_cannot_steer_the_terminal():
    assert cell("a\x1b[2Jb\nc") == "a�[2Jb�c"


def test_truth_is_said_in_words():
    assert (cell(True), cell(False)) == ("yes", "no")
