# SPDX-License-Identifier: Apache-2.0
"""What operators' programs are told of leases, quotas and access, received from the bus inside the process."""

from __future__ import annotations

import datetime
import json
import uuid

import pytest
from oslo_utils import timeutils
from pycadf import cadftaxonomy

from gsaas import rpc
from gsaas.db import gpus, leases, models
from gsaas.metrics import counted
from gsaas.notifications import cadf
from gsaas.objects.gpu_report import GpuInfo
from gsaas.objects.lifecycle import Event
from tests.api.world import World, only_error
from tests.support.notifications import listening

SETTINGS = """\
[DEFAULT]
host = controller1
[oslo_messaging_notifications]
driver = messagingv2
[notifications]
topics = {topic}
audit_topics = {topic}
"""
QUOTA = "[quotas]\ncgpus = 1\n"


@pytest.fixture
def told(tmp_path, request):
    """A world that notifies, and what it has sent."""
    topic = f"told-{uuid.uuid4().hex}"
    made = World.build(tmp_path, settings=SETTINGS.format(topic=topic) + request.param)
    with listening(made.conf, rpc.IN_PROCESS, topic) as inbox:
        made.inbox = inbox
        yield made
    made.database.close()


LEASES = pytest.mark.parametrize("told", [""], indirect=True)
AUDIT = pytest.mark.parametrize("told", ["audit = true\n"], indirect=True)


@LEASES
def test_a_lease_is_told_of_from_its_claim_to_its_end(told):
    lease = told.launch(mode="shared", memory_mb=512)["id"]
    told.engine.settle()
    told.call("member", "DELETE", f"/v1/leases/{lease}")
    told.engine.settle()
    received = told.inbox.wait(5)
    assert [(one.event_type, one.data["status"]) for one in received] == [
        ("lease.create.start", "CLAIMED"),
        ("lease.create.end", "CLAIMED"),
        ("lease.activate", "ACTIVE"),
        ("lease.release.start", "RELEASING"),
        ("lease.release.end", "RELEASED"),
    ]
    assert {one.publisher for one in received} == {"gsaas-api:controller1"}
    assert {one.data["id"] for one in received} == {lease}
    (device,) = received[0].data["devices"]
    assert device["gsaas_object.data"]["memory_mb"] == 512
    assert device["gsaas_object.data"]["gpu_host"] in ("gpu1", "gpu2")


@LEASES
def test_a_reservation_is_told_of_from_its_making_to_its_end(told):
    end = (timeutils.utcnow() + datetime.timedelta(hours=1)).isoformat() + "Z"
    body = {"reservation": {"cgpus": {"count": 1}, "end": end}}
    newest = {"OpenStack-API-Version": "gpu-scheduling latest"}
    made = told.call("member", "POST", "/v1/reservations", body, headers=newest).json
    told.claims.reservations.audit()
    [before] = [row[2] for row in told.rows()[models.ReservedShareRow.__tablename__]]
    with told.database.write() as session:
        gpus.set_disabled(session, before, True)
    told.claims.reservations.audit()
    path = f"/v1/reservations/{made['reservation']['id']}"
    told.call("member", "DELETE", path, headers=newest)
    received = told.inbox.wait(4)
    assert [(one.event_type, one.data["status"]) for one in received] == [
        ("reservation.create", "PENDING"),
        ("reservation.start", "ACTIVE"),
        ("reservation.move", "ACTIVE"),
        ("reservation.end", "CANCELLED"),
    ]
    assert {one.data["id"] for one in received} == {made["reservation"]["id"]}
    [share] = [one["gsaas_object.data"] for one in received[2].data["shares"]]
    assert share["moved_from"] == before != share["gpu_uuid"]
    assert share["gpu_host"] in ("gpu1", "gpu2")


@LEASES
def test_a_lease_that_waits_has_started_and_ends_its_creation_with_its_gpus(told):
    first = told.launch(count=8)["id"]
    body = {"lease": {"cgpus": {"count": 1}, "server": None, "wait": None}}
    waiting = told.call("member", "POST", "/v1/leases", body).json["lease"]["id"]
    told.engine.settle()
    told.call("member", "DELETE", f"/v1/leases/{first}")
    told.engine.settle()
    received = told.inbox.wait(8)
    mine = [(one.event_type, one.data["status"]) for one in received if one.data["id"] == waiting]
    assert mine == [
        ("lease.create.start", "QUEUED"),
        ("lease.create.end", "CLAIMED"),
        ("lease.activate", "ACTIVE"),
    ]


@LEASES
def test_a_failed_launch_is_an_error(told):
    lease = told.launch()["id"]
    with told.database.writing() as connection:
        leases.transition(
            connection, lease, Event.FAIL, "x", fault_step="boot", fault_message="no image"
        )
    # Each priority has a queue of its own: between two of them there is no order.
    failed = next(one for one in told.inbox.wait(3) if one.event_type == "lease.fail")
    assert failed.priority == "error"
    assert failed.data["fault"]["gsaas_object.data"] == {"step": "boot", "message": "no image"}


@LEASES
def test_a_transaction_that_is_rolled_back_tells_nothing(told):
    lease = told.launch()["id"]
    with pytest.raises(RuntimeError), told.database.writing() as connection:
        leases.transition(connection, lease, Event.RELEASE)
        raise RuntimeError
    told.launch()
    assert told.inbox.types(4) == ["lease.create.start", "lease.create.end"] * 2


@LEASES
def test_a_gpu_that_is_withdrawn_and_returns_is_told_of(told):
    def report(withdrawn=None):
        infos = [
            GpuInfo(f"GPU-0001-{index}", index, "Quadro M4000", 8192, 8308) for index in range(4)
        ]
        if withdrawn:
            infos[0] = GpuInfo("GPU-0001-0", 0, "Quadro M4000", 8192, 8308, withdrawn=withdrawn)
        with told.database.write() as session:
            gpus.register(session, "gpu1", "192.168.50.2", infos)

    report("it fails: no answer")
    report("it fails: no answer")
    report()
    # Each priority has a queue of its own, and nothing orders those.
    returned, withdrawn = sorted(told.inbox.wait(2), key=lambda one: one.event_type)
    assert (withdrawn.priority, withdrawn.event_type) == ("error", "gpu.withdrawn")
    assert withdrawn.data["withdrawn_reason"] == "it fails: no answer"
    assert (returned.priority, returned.event_type) == ("info", "gpu.returned")
    assert (returned.data["uuid"], returned.data["host"]) == ("GPU-0001-0", "gpu1")


@pytest.mark.parametrize("told", [QUOTA], indirect=True)
def test_a_quota_that_refuses_a_launch_is_told_of(told):
    response = told.call("member", "POST", "/v1/leases", {"lease": {"cgpus": {"count": 2}}})
    assert only_error(response)["code"] == "gsaas.quota.exceeded"
    (refused,) = told.inbox.wait(1)
    assert (refused.priority, refused.event_type) == ("warn", "quota.exceeded")
    assert refused.data["project_id"] == "blue"
    assert refused.data["count"] == 2
    assert refused.data["request_id"] == response.headers["X-Openstack-Request-Id"]


@LEASES
def test_no_notification_contains_user_data_or_a_grant(told):
    server = {"user_data": "c2VjcmV0LXNlY3JldA=="}
    told.launch(server=server, mode="shared", memory_mb=64)
    body = {"lease": {"cgpus": {"count": 1, "mode": "shared", "memory_mb": 64}, "server": None}}
    told.call("member", "POST", "/v1/leases", body)
    text = json.dumps([one.payload for one in told.inbox.wait(5)])
    assert "c2Vj" not in text
    assert "user_data" not in text
    assert "GSAAS_GRANT" not in text


def test_nothing_is_made_while_notifications_are_off(world):
    world.launch()
    assert world.database.on_commit is None
    assert world.notifications._outbox._thread is None


# Security events


def events(told, count):
    received = told.inbox.wait(count)
    for one in received:
        assert cadftaxonomy.is_valid_action(one.payload["action"])
        assert one.payload["initiator"]["host"]["address"] == "127.0.0.1"
        assert one.payload["observer"]["id"] == "gsaas-api:controller1"
    return [
        (
            one.event_type,
            one.payload["action"],
            one.payload["outcome"],
            one.payload["reason"]["reasonCode"],
            one.payload["target"]["id"],
            one.payload["initiator"]["id"],
        )
        for one in received
    ]


def only_security(told):
    """Ignore the notifications of leases that a test makes on its way."""
    told.database.on_commit = None


@AUDIT
def test_another_projects_lease_is_answered_as_unknown_and_reported_as_refused_access(told):
    only_security(told)
    lease = told.launch("stranger")["id"]
    for method in ("GET", "DELETE"):
        answer = told.call("member", method, f"/v1/leases/{lease}")
        assert only_error(answer)["detail"] == f"there is no lease {lease}"
    nobodys = "00000000-0000-4000-8000-000000000000"
    told.call("member", "GET", f"/v1/leases/{nobodys}")  # no event: it is nobody's
    told.call("reader", "DELETE", f"/v1/leases/{lease}")
    assert events(told, 3) == [
        (cadf.ACCESS, "read", "failure", "404", lease, "member"),
        (cadf.ACCESS, "delete", "failure", "404", lease, "member"),
        (cadf.ACCESS, "delete", "failure", "403", lease, "reader"),
    ]
    initiator = told.inbox.wait(3)[0].payload["initiator"]
    assert initiator["project_id"] == "blue"


@AUDIT
def test_failed_authentication_is_reported_without_the_token(told):
    told.call(None, "GET", "/v1/leases", headers={"X-Auth-Token": "wrong-token-of-a-thief"})
    told.call(None, "GET", "/v1/leases")
    told.call(None, "GET", "/v1")  # needs no token
    assert [event[:4] for event in events(told, 2)] == [
        (cadf.AUTHENTICATE, "authenticate", "failure", "401")
    ] * 2
    assert "thief" not in json.dumps([one.payload for one in told.inbox.wait(2)])


@AUDIT
def test_changes_by_administrators_are_reported_whether_they_succeed_or_not(told):
    def patch(noun, name, disabled):
        told.call("admin", "PATCH", f"/v1/{noun}s/{name}", {noun: {"disabled": disabled}})

    patch("gpu", "GPU-0001-0", True)
    patch("gpu", "GPU-0001-0", False)
    patch("host", "gpu1", True)
    patch("host", "gpu9", True)
    told.call("member", "PATCH", "/v1/hosts/gpu1", {"host": {"disabled": False}})
    told.call("admin", "PATCH", "/v1/settings", {"settings": {"monitor_interval": 5}})
    assert events(told, 6) == [
        (cadf.CHANGE, "disable", "success", "200", "GPU-0001-0", "admin"),
        (cadf.CHANGE, "enable", "success", "200", "GPU-0001-0", "admin"),
        (cadf.CHANGE, "disable", "success", "200", "gpu1", "admin"),
        (cadf.CHANGE, "disable", "failure", "404", "gpu9", "admin"),
        (cadf.ACCESS, "update", "failure", "403", "gpu1", "member"),
        (cadf.CHANGE, "update", "success", "200", "unknown", "admin"),
    ]


@AUDIT
def test_a_refused_grant_is_reported_with_the_address_that_presented_it(told):
    grant = {"key": "eyJhbGciOiJub25lIn0.e30.", "address": "192.0.2.10"}
    answer = told.call("service", "POST", "/v1/grants/redeem", {"grant": grant})
    assert only_error(answer)["code"] == "gsaas.grant.forged"
    (refused,) = told.inbox.wait(1)
    assert (refused.event_type, refused.payload["outcome"]) == (cadf.GRANT, "failure")
    assert refused.payload["initiator"]["host"]["address"] == "192.0.2.10"
    assert refused.payload["reason"]["policyId"] == "gsaas.grant.forged"
    assert grant["key"] not in json.dumps(refused.payload)


@pytest.mark.parametrize("told", ["audit = true\naudit_per_source = 3\n"], indirect=True)
def test_an_attacker_fills_neither_the_bus_nor_hides_a_change(told):
    dropped = counted.NOTIFICATIONS_DROPPED.labels("rate")
    before = dropped._value.get()
    for _ in range(50):
        told.call(None, "GET", "/v1/leases")
    told.call("admin", "PATCH", "/v1/hosts/gpu1", {"host": {"disabled": True}})
    found = events(told, 4)
    assert [event[0] for event in found] == [cadf.AUTHENTICATE] * 3 + [cadf.CHANGE]
    assert dropped._value.get() - before == 47
