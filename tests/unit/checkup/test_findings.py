# SPDX-License-Identifier: Apache-2.0
"""Each check turns values into a finding of the right level, with advice that helps."""

from __future__ import annotations

import datetime

import pytest

from gsaas.checkup import agents, bus, database, findings, identity, nova
from gsaas.checkup.findings import Finding, Level
from gsaas.rpc.queues import QueueState

NOW = datetime.datetime(2026, 1, 1, 12)
KIND = agents.AgentKind("endpoints", "compute host", "gsaas-rodvr", "no VM can reach GPUs")


def seconds(number: float) -> datetime.datetime:
    return NOW + datetime.timedelta(seconds=number)


@pytest.mark.parametrize(
    ("theirs", "level", "said"),
    [
        (0, Level.OK, "agree"),
        (1.9, Level.OK, "agree"),
        (-90, Level.WARN, "90 s ahead of"),
        (90, Level.WARN, "90 s behind"),
    ],
)
def test_clocks_may_differ_a_little(theirs: float, level: Level, said: str):
    finding = database.compare_clocks(seconds(theirs), NOW)
    assert finding.level is level
    assert said in finding.said


def test_agents_that_reported_lately_are_ok():
    finding = agents.check_last_reports(KIND, {"c1": seconds(-60), "c2": seconds(0)}, NOW, 60)
    assert finding == findings.ok("endpoints", "2, all have reported in the last 60 s")


def test_silent_agents_are_named_with_what_to_do_about_them():
    last = {"c1": seconds(-61), "c2": None, "c3": seconds(-1)}
    finding = agents.check_last_reports(KIND, last, NOW, 60)
    assert finding.level is Level.WARN
    assert finding.said == "2 of 3 are silent for more than 60 s: c1, c2"
    assert "systemctl status gsaas-rodvr" in finding.todo
    assert "-forget" in finding.todo


def test_a_sentence_lists_five_names_at_most():
    last = {f"c{number}": None for number in range(1, 9)}
    assert agents.check_last_reports(KIND, last, NOW, 60).said.endswith(
        ": c1, c2, c3, c4, c5 and 3 more"
    )


def test_a_cloud_without_agents_names_the_consequence():
    finding = agents.check_last_reports(KIND, {}, NOW, 60)
    assert finding.level is Level.WARN
    assert "no VM can reach GPUs" in finding.said


def test_a_problem_that_an_endpoint_reports_is_repeated():
    (finding,) = agents.list_problems("endpoints", {"c1": [], "c2": ["there is no interface gpu0"]})
    assert (finding.level, finding.said) == (Level.WARN, "c2: there is no interface gpu0")


@pytest.mark.parametrize(
    ("queue", "level"),
    [
        (None, Level.FAIL),
        (QueueState(0, 0), Level.FAIL),
        (QueueState(0, 1), Level.OK),
        (QueueState(bus.BACKLOG, 1), Level.OK),
        (QueueState(bus.BACKLOG + 1, 1), Level.WARN),
    ],
)
def test_an_engine_must_read_its_queue_fast_enough(queue, level: Level):
    assert bus.check_engine_queue(queue).level is level


def test_nova_must_send_notifications():
    (finding,) = nova.check_queues(
        "gsaas", {"gsaas": QueueState(0, 1), "versioned_notifications.info": None}
    )
    assert finding.level is Level.WARN
    assert "notification_format = versioned" in finding.todo


def test_notifications_must_not_pile_up():
    queues = {"gsaas": QueueState(3, 1), "versioned_notifications.info": QueueState(20_000, 0)}
    (finding,) = nova.check_queues("gsaas", queues)
    assert finding.level is Level.WARN
    assert finding.said == "20000 wait in the queue versioned_notifications.info"
    assert r"'^(versioned_notifications\..*|gsaas)$' '{" in finding.todo
    (finding,) = nova.check_queues(
        "gsaas", {**queues, "versioned_notifications.info": QueueState(5, 0)}
    )
    assert finding.level is Level.OK


def test_the_advice_about_gsaas_own_queue_names_the_engine():
    queues = {"gsaas": QueueState(20_000, 1), "versioned_notifications.info": QueueState(0, 0)}
    (finding,) = nova.check_queues("gsaas", queues)
    assert "gsaas-engine" in finding.todo


def test_novas_compute_hosts_and_endpoints_have_the_same_names():
    (finding,) = nova.compare_compute_hosts(["c1", "c2"], {"c2", "c1"})
    assert finding.level is Level.OK
    without, unknown = nova.compare_compute_hosts(["c1.example.org", "c2"], {"c1", "c2"})
    assert "c1.example.org" in without.said
    assert unknown.said.endswith("not used by Nova: c1")
    assert "[DEFAULT]host" in unknown.todo


def test_the_service_user_needs_both_roles():
    (finding,) = identity.check_service_user_roles(["service", "admin", "reader"])
    assert finding.level is Level.OK
    (finding,) = identity.check_service_user_roles(["reader"])
    assert finding.level is Level.FAIL
    assert "admin and service" in finding.said


def test_only_what_keeps_gsaas_from_working_is_a_failure():
    working = [findings.ok("a", "b"), findings.warn("a", "b", "c")]
    assert not findings.failed(working)
    assert findings.failed([*working, findings.fail("a", "b", "c")])


def test_the_reason_of_an_error_is_its_innermost_message():
    try:
        try:
            raise ConnectionRefusedError(111, "Connection refused")
        except OSError as error:
            raise RuntimeError("HTTPConnectionPool(...): Max retries exceeded") from error
    except RuntimeError as error:
        assert findings.reason(error) == "Connection refused"
    assert findings.reason(ValueError("no\n such thing.")) == "no such thing"
    assert findings.reason(ValueError()) == "ValueError"


def test_ok_makes_a_finding_without_advice():
    assert Finding("bus", Level.OK, "fine") == findings.ok("bus", "fine")
