# SPDX-License-Identifier: Apache-2.0
"""Access decisions are cached for a moment, for each caller and target."""

from __future__ import annotations

from pathlib import Path

import pytest

import gsaas.conf
from gsaas.api import rbac
from gsaas.api.decisions import MAX_AGE, DecisionCache
from gsaas.context import RequestContext

BLUE = {"project_id": "blue", "user_id": "ann"}


class Clock:
    """A clock in seconds that tests set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """The operator's file of rules, which is empty at first."""
    file = tmp_path / "policy.yaml"
    file.write_text("{}\n")
    return file


@pytest.fixture
def decisions(clock: Clock, rules: Path) -> DecisionCache:
    file = rules.with_name("gsaas.conf")
    file.write_text(f"[oslo_policy]\npolicy_file = {rules}\n")
    return DecisionCache(rbac.enforcer(gsaas.conf.load(files=[str(file)])), clock)


def caller(project_id: str = "blue", *roles: str) -> RequestContext:
    return RequestContext.of(user_id="ann", project_id=project_id, roles=list(roles))


def test_a_decision_applies_to_one_caller_and_target_only(decisions: DecisionCache):
    rule = rbac.LEASES_DELETE
    assert decisions.allows(rule, BLUE, caller("blue", "member"))
    assert not decisions.allows(rule, BLUE, caller("red", "member"))
    assert not decisions.allows(rule, BLUE, caller("blue", "reader"))
    assert not decisions.allows(rule, BLUE | {"project_id": "red"}, caller("blue", "member"))
    assert decisions.allows(rule, BLUE, caller("blue", "member"))


def test_a_change_of_the_rules_takes_effect_within_the_maximum_age(
    decisions: DecisionCache, clock: Clock, rules: Path
):
    rule = rbac.LEASES_CREATE
    assert decisions.allows(rule, BLUE, caller("blue", "member"))
    rules.write_text(f'"{rule}": "role:admin"\n# so that the size differs\n')
    clock.now += MAX_AGE * 1.01
    assert not decisions.allows(rule, BLUE, caller("blue", "member"))
    assert decisions.allows(rule, BLUE, caller("blue", "admin"))


def test_a_rule_that_does_not_exist_allows_nothing(decisions: DecisionCache):
    assert not decisions.allows("gsaas:leases:forgotten", BLUE, caller("blue", "admin"))
