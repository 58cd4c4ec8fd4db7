# SPDX-License-Identifier: Apache-2.0
"""Units come up in the order of what they need, and what fails is named."""

from __future__ import annotations

import threading

import pytest

from tests.openstack.bed import services
from tests.openstack.bed.errors import BedError
from tests.openstack.bed.work import Unit, bring_up


def test_a_unit_begins_when_all_that_it_needs_has_finished():
    log: list[str] = []
    units = [
        Unit("cloud", ("api", "agent"), prepare=lambda: log.append("cloud")),
        Unit("agent", ("api",), prepare=lambda: log.append("agent")),
        Unit("api", finish=lambda: log.append("api")),
    ]
    reported: list[str] = []
    bring_up(units, lambda name, _took: reported.append(name))
    assert log == reported == ["api", "agent", "cloud"]


def test_units_that_do_not_need_each_other_are_at_work_together():
    both = threading.Barrier(2, timeout=60)
    units = [Unit("one", prepare=lambda: _meet(both)), Unit("two", prepare=lambda: _meet(both))]
    bring_up(units, lambda _name, _took: None)
    assert not both.broken


def test_the_unit_that_fails_is_named_and_what_needs_it_is_left_alone():
    log: list[str] = []

    def fail() -> None:
        raise BedError("port 5000 is taken")

    units = [
        Unit("api", prepare=fail),
        Unit("agent", ("api",), prepare=lambda: log.append("agent")),
    ]
    with pytest.raises(BedError, match=r"^api: port 5000 is taken$"):
        bring_up(units, lambda name, _took: log.append(name))
    assert log == []


def test_the_units_of_the_bed_need_only_each_other():
    names = [unit.name for unit in services.units()]
    assert len(names) == len(set(names))
    assert {need for unit in services.units() for need in unit.needs} <= set(names)


def _meet(barrier: threading.Barrier) -> None:
    barrier.wait()
