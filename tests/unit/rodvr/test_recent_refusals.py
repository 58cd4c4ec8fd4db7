# SPDX-License-Identifier: Apache-2.0
"""Counters that grow are a problem, and no longer than they do."""

from __future__ import annotations

import pytest

from gsaas.objects.refusals import Refusals
from gsaas.rodvr.recent_refusals import KEPT, RecentRefusals, RefusalCounts


@pytest.fixture
def recent() -> RecentRefusals:
    return RecentRefusals(1000.0)


def test_what_grows_is_reported_with_how_much_and_since_when(recent: RecentRefusals) -> None:
    recent.look({"port-1": RefusalCounts(foreign=3)}, 1030.0)
    assert recent.reports({}, 1030.0) == {"port-1": Refusals(30, foreign=3)}
    recent.look({"port-1": RefusalCounts(unmapped=1, foreign=5)}, 1060.0)
    assert recent.reports({"port-1": "10.0.1.9"}, 1060.0) == {
        "port-1": Refusals(60, unmapped=1, foreign=5, source="10.0.1.9")
    }


def test_what_stays_as_it_is_is_forgotten_after_a_while(recent: RecentRefusals) -> None:
    counted = {"port-1": RefusalCounts(foreign=3)}
    recent.look(counted, 1030.0)
    recent.look(counted, 1030.0 + KEPT - 1)
    assert recent.reports({}, 1030.0 + KEPT - 1)
    recent.look(counted, 1030.0 + KEPT)
    assert recent.reports({}, 1030.0 + KEPT) == {}
    recent.look({"port-1": RefusalCounts(foreign=4)}, 2000.0)
    assert recent.reports({}, 2000.0)["port-1"].foreign == 1


def test_counters_that_begin_anew_grow_from_zero(recent: RecentRefusals) -> None:
    recent.look({"port-1": RefusalCounts(foreign=30)}, 1030.0)
    recent.look({"port-1": RefusalCounts(foreign=2)}, 1060.0)
    assert recent.reports({}, 1060.0)["port-1"].foreign == 32


def test_what_a_former_process_has_counted_is_not_of_late(recent: RecentRefusals) -> None:
    """The tables outlive the endpoint, and so do their counters."""
    recent.begin({"port-1": RefusalCounts(foreign=3000)})
    recent.look({"port-1": RefusalCounts(foreign=3000)}, 1030.0)
    assert recent.reports({}, 1030.0) == {}
    recent.begin({"port-1": RefusalCounts(foreign=3002), "port-2": RefusalCounts(not_tcp=1)})
    grown = {"port-1": RefusalCounts(foreign=3002), "port-2": RefusalCounts(not_tcp=1)}
    recent.look(grown, 1060.0)
    assert recent.reports({}, 1060.0) == {
        "port-1": Refusals(30, foreign=2),
        "port-2": Refusals(30, not_tcp=1),
    }


def test_a_port_that_is_gone_has_no_problem_any_more(recent: RecentRefusals) -> None:
    recent.look({"port-1": RefusalCounts(foreign=3)}, 1030.0)
    recent.look({}, 1060.0)
    assert recent.reports({}, 1060.0) == {}


def test_refused_connections_are_not_blamed_on_a_vm_whose_host_has_a_problem(
    recent: RecentRefusals,
) -> None:
    counted = {"port-1": RefusalCounts(unmapped=3, foreign=1)}
    recent.look(counted, 1030.0, host_is_sound=False)
    assert recent.reports({}, 1030.0) == {"port-1": Refusals(30, foreign=1)}
    recent.look(counted, 1060.0)
    assert recent.reports({}, 1060.0) == {"port-1": Refusals(60, foreign=1)}


def test_a_source_is_named_only_where_sources_were_refused(recent: RecentRefusals) -> None:
    recent.look({"port-1": RefusalCounts(unmapped=3)}, 1030.0)
    assert recent.reports({"port-1": "10.0.1.9"}, 1030.0)["port-1"].source is None
