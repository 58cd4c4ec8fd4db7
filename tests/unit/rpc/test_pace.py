# SPDX-License-Identifier: Apache-2.0
"""Agents that were stopped by one cause do not go on at one moment."""

from __future__ import annotations

from gsaas.rpc import pace


def longest(_least: float, most: float) -> float:
    return most


def shortest(least: float, _most: float) -> float:
    return least


def test_pauses_double_and_stay_below_a_bound():
    back_off = pace.BackOff(longest)
    assert [back_off.next_pause() for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]


def test_half_of_each_pause_is_left_to_chance():
    back_off = pace.BackOff(shortest)
    assert [back_off.next_pause() for _ in range(7)] == [0.5, 1, 2, 4, 8, 15, 15]


def test_agents_that_fail_together_try_again_at_different_moments():
    pauses = {pace.BackOff().next_pause() for _ in range(100)}
    assert len(pauses) == 100
    assert all(0.5 <= pause <= 1 for pause in pauses)


def test_a_message_in_turn_is_followed_by_the_whole_interval():
    assert pace.until_next(10.0, in_turn=True, chance=shortest) == 10.0


def test_any_other_is_followed_by_a_part_of_it():
    assert pace.until_next(10.0, in_turn=False, chance=shortest) == 1.0
    assert pace.until_next(10.0, in_turn=False, chance=longest) == 10.0


def test_reports_go_on_at_their_interval_once_one_was_in_turn():
    reports = pace.ReportPace(shortest)
    assert (
        reports.next_pause(10.0, answered=True) == 1.0
    )  # the first one had a reason that all agents may have
    reports.news = False
    assert reports.next_pause(10.0, answered=True) == 10.0


def test_a_report_that_had_news_is_followed_by_a_part_of_the_interval():
    reports = pace.ReportPace(shortest)
    reports.next_pause(10.0, answered=True)
    reports.news = True
    assert reports.next_pause(10.0, answered=True) == 1.0


def test_reports_that_are_not_answered_are_sent_again_with_growing_pauses():
    reports = pace.ReportPace(longest)
    pauses = [reports.next_pause(10.0, answered=False) for _ in range(6)]
    assert pauses == [1, 2, 4, 8, 10, 10]  # never longer than the interval


def test_the_first_answer_after_failures_leaves_the_next_report_to_chance():
    reports = pace.ReportPace(shortest)
    reports.next_pause(10.0, answered=False)
    reports.news = False
    assert reports.next_pause(10.0, answered=True) == 1.0
    assert reports.next_pause(10.0, answered=False) == 0.5  # and pauses grow anew
