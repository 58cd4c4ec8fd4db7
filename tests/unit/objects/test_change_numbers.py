# SPDX-License-Identifier: Apache-2.0
"""Which changes a reader has seen, when transactions commit in any order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gsaas.objects.change_numbers import END, PER_WRITER, SeenChanges


def is_unseen(seen: SeenChanges, number: int) -> bool:
    return any(after < number < before for after, before in seen.unseen())


def test_a_reader_that_has_seen_nothing_has_every_number_to_see():
    assert SeenChanges().unseen() == [(-1, END)]


def test_what_follows_the_last_change_of_each_writer_is_unseen_and_nothing_else():
    seen = SeenChanges()
    for number in (3 * PER_WRITER + 7, PER_WRITER + 2, PER_WRITER + 1):
        seen.see(number)

    assert seen.unseen() == [
        (-1, PER_WRITER),
        (PER_WRITER + 2, 3 * PER_WRITER),
        (3 * PER_WRITER + 7, END),
    ]


def test_rows_that_never_changed_are_seen_once():
    seen = SeenChanges()
    seen.see(0)
    assert seen.unseen() == [(0, END)]


def test_a_processs_own_change_counts_only_if_it_follows_what_was_seen_of_the_writer():
    seen = SeenChanges()

    assert seen.see_own(PER_WRITER + 1)
    assert not seen.see_own(PER_WRITER + 3)
    assert is_unseen(seen, PER_WRITER + 2)
    assert is_unseen(seen, PER_WRITER + 3)
    assert seen.see_own(PER_WRITER + 2)
    assert not is_unseen(seen, PER_WRITER + 2)


NUMBERS = st.builds(
    lambda writer, count: writer * PER_WRITER + count, st.integers(0, 9), st.integers(0, 9)
)


@given(st.lists(NUMBERS), NUMBERS)
def test_a_number_is_seen_if_it_or_a_later_one_of_its_writer_was(read, number):
    seen = SeenChanges()
    for each in read:
        seen.see(each)

    later = [each for each in read if each // PER_WRITER == number // PER_WRITER]
    assert is_unseen(seen, number) == (number > max(later, default=-1))
