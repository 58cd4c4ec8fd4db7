# SPDX-License-Identifier: Apache-2.0
"""The simulated clock."""

from __future__ import annotations

from gsaas.sim.clock import Clock


def test_events_run_in_the_order_of_time_then_priority_then_scheduling():
    clock, ran = Clock(), []
    clock.schedule(2, ran.append, "late")
    clock.schedule(1, ran.append, "second", priority=1)
    clock.schedule(1, ran.append, "first")
    clock.schedule(1, ran.append, "third", priority=1)
    clock.run()
    assert ran == ["first", "second", "third", "late"]
    assert (clock.now, clock.events) == (2, 4)


def test_a_cancelled_event_neither_runs_nor_moves_the_clock():
    clock, ran = Clock(), []
    clock.schedule(1, ran.append, "kept")
    clock.schedule(5, ran.append, "cancelled").cancel()
    clock.run()
    assert ran == ["kept"]
    assert (clock.now, clock.events) == (1, 1)


def test_an_event_that_has_run_can_be_cancelled_without_effect():
    clock, ran = Clock(), []
    event = clock.schedule(1, ran.append, "once")
    clock.run()
    event.cancel()
    clock.run()
    assert ran == ["once"]
