# SPDX-License-Identifier: Apache-2.0
"""What is in flight is no difference, and who does not answer costs what they would have told."""

from __future__ import annotations

import datetime

import pytest

from gsaas import exceptions
from gsaas.cloud.base import Owner, Server, ServerStatus
from gsaas.gpgpums.move_changes import Target
from gsaas.objects.lifecycle import Status
from gsaas.objects.move import Kind
from gsaas.verify import rules
from gsaas.verify.rules import Act, Step
from tests.unit.engine.world import GPU_HOST, HOST
from tests.unit.verify import test_damage as damages
from tests.unit.verify.conftest import Cloud


def booting(cloud: Cloud) -> str:
    cloud.world.cloud.initial_status = ServerStatus.BUILD
    lease_id = cloud.world.launch()
    cloud.world.reconcile(lease_id)
    assert cloud.status(lease_id) == Status.BOOTING
    return lease_id


def test_a_lease_that_boots_is_in_flight_whatever_it_has_by_now(cloud: Cloud) -> None:
    lease_id = booting(cloud)
    cloud.world.endpoint.bindings_by_host[HOST].pop(cloud.world.lease(lease_id).port_id)
    cloud.world.monitor.daemons[GPU_HOST].pop(f"{lease_id}-0")
    assert cloud.differences() == []


def test_what_a_lease_that_is_being_released_still_has_is_in_flight(cloud: Cloud) -> None:
    """The agents do not answer the engine, and have everything yet."""
    cloud.world.endpoint.answers = cloud.world.monitor.answers = False
    cloud.world.release(cloud.vm)
    cloud.world.reconcile(cloud.vm)
    assert cloud.status(cloud.vm) == Status.RELEASING
    cloud.world.endpoint.answers = cloud.world.monitor.answers = True
    assert cloud.differences() == []


@pytest.mark.parametrize("silent", ["endpoint", "monitor"])
def test_a_lease_that_moves_is_in_flight_on_both_of_its_gpus(cloud: Cloud, silent: str) -> None:
    """Both GPUs are on one host, whose monitor then does not answer, or the endpoint is not sent the new binding."""
    other = "GPU-1" if cloud.world.lease(cloud.vm).claims[0].gpu_uuid == "GPU-0" else "GPU-0"
    cloud.world.claims.move(cloud.vm, Target(gpu_uuid=other), Kind.CUT)
    if silent == "endpoint":
        cloud.world.endpoint.before_apply = lambda: setattr(cloud.world.endpoint, "answers", False)
    cloud.world.monitor.ends_daemons = cloud.world.monitor.answers = silent != "monitor"
    cloud.world.reconcile(cloud.vm)
    assert cloud.world.lease(cloud.vm).moving is not None
    cloud.world.endpoint.answers = cloud.world.monitor.answers = True
    assert cloud.differences() == []


def test_the_row_of_a_lease_that_was_changed_a_moment_ago_is_in_flight(cloud: Cloud) -> None:
    damages.lose_binding(cloud)
    assert cloud.differences(settle=600) == []
    cloud.world.age(cloud.vm, 0)
    cloud.sql("UPDATE leases SET updated_at = '2026-01-01 00:00:00.000000'")
    assert {one.kind for one in cloud.differences(settle=600)} == {"binding-missing"}


def test_a_lease_whose_steps_an_engine_takes_is_in_flight(cloud: Cloud) -> None:
    damages.lose_binding(cloud)
    owned = "UPDATE leases SET driven_by = 'engine-1', driven_until = :until WHERE id = :id"
    now = cloud.world.database.now()
    for seconds, expected in ((60, set()), (-60, {"binding-missing"})):
        until = now + datetime.timedelta(seconds=seconds)
        cloud.sql(owned, until=f"{until:%Y-%m-%d %H:%M:%S.%f}", id=cloud.vm)
        assert cloud.kinds() == expected


def test_only_what_differs_at_both_looks_is_a_difference(cloud: Cloud) -> None:
    damages.lose_binding(cloud)
    damages.run_daemon_of_nobody(cloud)
    first = cloud.differences()
    cloud.world.gpu_hosts.reconcile(GPU_HOST)  # as after the next report of its monitor
    damages.lose_tag(cloud)
    kinds = {one.kind for one in rules.lasting(first, cloud.differences())}
    assert kinds == {"binding-missing"}


def test_a_binding_that_a_lease_has_got_meanwhile_is_not_removed(cloud: Cloud) -> None:
    damages.bind_port_of_nobody(cloud)
    found = cloud.differences()
    port = damages.port_of(cloud, cloud.vm)
    step = Step(
        Act.REMOVE_BINDING, port, HOST
    )  # as if the look had been before the lease was bound
    cloud.repairs().take(step)
    assert port in cloud.world.endpoint.bindings_by_host[HOST]
    assert [one.step for one in found] == [Step(Act.REMOVE_BINDING, "p-9", HOST)]


def test_a_binding_is_not_sent_to_a_host_that_its_lease_has_left(cloud: Cloud) -> None:
    cloud.end(cloud.vm)
    cloud.repairs().take(Step(Act.ORDER_BINDING, cloud.vm, HOST))
    ports = cloud.world.endpoint.bindings_by_host[HOST]
    assert set(ports) == {damages.port_of(cloud, cloud.alloc)}


@pytest.mark.parametrize(
    ("silence", "who", "told"),
    [
        ("endpoint", {f"the endpoint of {HOST}", "the endpoint of compute2"}, "daemon-missing"),
        ("monitor", {f"the monitor of {GPU_HOST}"}, "binding-missing"),
        ("cloud", {"the cloud"}, "daemon-missing"),
    ],
)
def test_who_does_not_answer_is_named_and_the_others_are_compared(
    cloud: Cloud, silence: str, who: set[str], told: str
) -> None:
    damages.lose_binding(cloud)
    damages.lose_daemon(cloud)
    damages.lose_tag(cloud)
    everything = cloud.kinds()
    assert everything == {"binding-missing", "daemon-missing", "tag-lost"}
    of_silent = {"endpoint": "binding-missing", "monitor": "daemon-missing", "cloud": "tag-lost"}
    if silence == "cloud":
        cloud.world.cloud.is_down = True
    else:
        getattr(cloud.world, silence).answers = False
    facts = cloud.facts()
    assert {each.who for each in facts.not_asked} == who
    found = {one.kind for one in rules.differences(facts, 0)}
    assert found == everything - {of_silent[silence]}
    assert told in found


def test_a_server_that_the_cloud_cannot_reach_is_not_gone(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nova leaves the servers of a cell that is down out of its list, and does not say so."""
    damages.lose_binding(cloud)

    def find(owner: Owner) -> Server:
        asked.append(owner.lease_id)
        raise exceptions.CloudUnavailable(reason="Nova cannot reach the cell that has the server")

    asked: list[str] = []
    cloud.active(cloud.world.launch())
    monkeypatch.setattr(cloud.world.cloud, "list_servers", list)
    monkeypatch.setattr(cloud.world.cloud, "find", find)
    facts = cloud.facts()
    assert {one.kind for one in rules.differences(facts, 0)} == {"binding-missing"}
    assert [each.who for each in facts.not_asked] == ["the cloud"]
    assert "cannot reach the cell" in facts.not_asked[0].why
    assert len(asked) == 1  # each answer takes Nova a minute


def test_a_server_that_the_cloud_did_not_list_is_asked_for(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud.world.cloud, "list_servers", list)
    assert cloud.differences() == []
    assert cloud.facts().not_asked == ()


def test_a_repair_that_fails_is_told_and_the_others_are_done(cloud: Cloud) -> None:
    damages.lose_binding(cloud)
    damages.lose_daemon(cloud)
    found = cloud.differences()
    cloud.world.endpoint.answers = False
    outcomes = {one.kind: why for one, why in cloud.repairs().carry_out(found)}
    assert outcomes == {
        "binding-missing": f"the endpoint of {HOST} does not answer",
        "daemon-missing": None,
    }


def test_an_answer_that_is_no_report_is_as_none(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host may lie, and is then not believed."""
    monkeypatch.setattr(cloud.world.monitor, "audit", lambda _: {"daemons": []})
    [silent] = cloud.facts().not_asked
    assert "sent no valid report" in silent.why
