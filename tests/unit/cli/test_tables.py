"""Tables are aligned, and nothing in them steers the terminal."""

from __future__ import annotations

from gsaas.cli.tables import cell, facts, table


def test_words_go_left_numbers_right_and_nothing_trails():
    assert table(("name", "MiB", "why"), [("a", 2048, None), ("longer", 7, "")]) == (
        "  name     MiB  why\n  a       2048    -\n  longer     7    -"
    )


def test_a_table_without_rows_has_its_headings():
    assert table(("name", "MiB"), []) == "  name  MiB"


def test_facts_are_aligned():
    assert facts([("VM", "x"), ("status", None)]) == "  VM      x\n  status  -"


def test_what_others_named_cannot_steer_the_terminal():
    assert cell("a\x1b[2Jb\nc") == "a�[2Jb�c"


def test_truth_is_said_in_words():
    assert (cell(True), cell(False)) == ("yes", "no")
