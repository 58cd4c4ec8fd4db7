"""What a check-up makes of what it sees: values in, a finding out."""

from __future__ import annotations

import datetime

import pytest

from gsaas.checkup import agents, bus, database, findings, identity, nova
from gsaas.checkup.findings import Finding, Level
from gsaas.rpc import QueueState

NOW = datetime.datetime(2026, 1, 1, 12)
KIND = agents.Kind("endpoints", "compute host", "gsaas-rodvr", "no VM can reach GPUs")


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
    finding = database.clock(seconds(theirs), NOW)
    assert finding.level is level
    assert said in finding.said


def test_agents_that_spoke_lately_are_well():
    finding = agents.heard(KIND, {"c1": seconds(-60), "c2": seconds(0)}, NOW, 60)
    assert finding == findings.ok("endpoints", "2, all heard of in the last 60 s")


def test_agents_that_are_silent_are_named_and_so_is_what_to_do_about_them():
    last = {"c1": seconds(-61), "c2": None, "c3": seconds(-1)}
    finding = agents.heard(KIND, last, NOW, 60)
    assert finding.level is Level.WARN
    assert finding.said == "2 of 3 are silent for more than 60 s: c1, c2"
    assert "systemctl status gsaas-rodvr" in finding.todo
    assert "-forget" in finding.todo


def test_of_many_names_some_are_enough():
    last = {f"c{number}": None for number in range(1, 9)}
    assert agents.heard(KIND, last, NOW, 60).said.endswith(": c1, c2, c3, c4, c5 and 3 more")


def test_a_cloud_without_agents_says_what_nobody_has():
    finding = agents.heard(KIND, {}, NOW, 60)
    assert finding.level is Level.WARN
    assert "no VM can reach GPUs" in finding.said


def test_what_an_endpoint_complains_about_is_repeated():
    (finding,) = agents.troubles({"c1": [], "c2": ["there is no interface gpu0"]})
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
def test_somebody_has_to_do_the_engines_work_and_keep_up_with_it(queue, level: Level):
    assert bus.engines(queue).level is level


def test_nova_has_to_tell_what_happens():
    (finding,) = nova.told(
        "gsaas", {"gsaas": QueueState(0, 1), "versioned_notifications.info": None}
    )
    assert finding.level is Level.WARN
    assert "notification_format = versioned" in finding.todo


def test_what_nova_tells_may_not_pile_up():
    queues = {"gsaas": QueueState(3, 1), "versioned_notifications.info": QueueState(20_000, 0)}
    (finding,) = nova.told("gsaas", queues)
    assert finding.level is Level.WARN
    assert finding.said == "20000 wait in the queue versioned_notifications.info"
    assert r"'^(versioned_notifications\..*|gsaas)$' '{" in finding.todo
    (finding,) = nova.told("gsaas", {**queues, "versioned_notifications.info": QueueState(5, 0)})
    assert finding.level is Level.OK


def test_a_queue_of_our_own_that_piles_up_is_the_engines_business():
    queues = {"gsaas": QueueState(20_000, 1), "versioned_notifications.info": QueueState(0, 0)}
    (finding,) = nova.told("gsaas", queues)
    assert "gsaas-engine" in finding.todo


def test_novas_compute_hosts_and_endpoints_have_the_same_names():
    (finding,) = nova.computes(["c1", "c2"], {"c2", "c1"})
    assert finding.level is Level.OK
    without, unknown = nova.computes(["c1.example.org", "c2"], {"c1", "c2"})
    assert "c1.example.org" in without.said
    assert unknown.said.endswith("none that Nova uses: c1")
    assert "[DEFAULT]host" in unknown.todo


def test_the_service_needs_both_roles():
    (finding,) = identity.service_user(["service", "admin", "reader"])
    assert finding.level is Level.OK
    (finding,) = identity.service_user(["reader"])
    assert finding.level is Level.FAIL
    assert "admin and service" in finding.said


def test_only_what_keeps_gsaas_from_working_is_a_failure():
    well = [findings.ok("a", "b"), findings.warn("a", "b", "c")]
    assert not findings.failed(well)
    assert findings.failed([*well, findings.fail("a", "b", "c")])


def test_of_an_error_the_innermost_words_count():
    try:
        try:
            raise ConnectionRefusedError(111, "Connection refused")
        except OSError as error:
            raise RuntimeError("HTTPConnectionPool(...): Max retries exceeded") from error
    except RuntimeError as error:
        assert findings.reason(error) == "Connection refused"
    assert findings.reason(ValueError("no\n such thing.")) == "no such thing"
    assert findings.reason(ValueError()) == "ValueError"


def test_a_finding_is_what_json_says():
    assert Finding("bus", Level.OK, "fine") == findings.ok("bus", "fine")
