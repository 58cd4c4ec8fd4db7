# SPDX-License-Identifier: Apache-2.0
"""Which daemons belong to one gsaas-standalone, among those of several."""

from __future__ import annotations

from gsaas.gpu_host.daemons import namespaces, unit
from gsaas.gpu_host.daemons.unit import UnitState


def daemon(netns: str | None) -> UnitState:
    return UnitState(unit.name("20000", netns), "", "active")


def test_units_of_another_instance_whose_prefix_begins_alike_are_not_ours() -> None:
    ours, theirs = daemon("gsaas-gpu1"), daemon("gsaas-b-gpu1")
    assert namespaces.of(["gsaas-gpu1", "gsaas-switch"], [ours, theirs]) == [ours]


def test_units_of_a_host_whose_name_begins_alike_are_not_ours() -> None:
    assert namespaces.of(["gsaas-gpu1"], [daemon("gsaas-gpu10")]) == []


def test_a_character_that_a_pattern_would_interpret_stands_for_itself() -> None:
    assert namespaces.of(["gsaas-gpu*"], [daemon("gsaas-gpu1")]) == []


def test_without_namespaces_no_unit_is_ours() -> None:
    assert namespaces.of([], [daemon("gsaas-gpu1"), daemon(None)]) == []
