# SPDX-License-Identifier: Apache-2.0
"""Grants are redeemed once, in time, and only by the consumer that they were issued to."""

from __future__ import annotations

import datetime
import threading

import pytest
from oslo_utils import timeutils

from gsaas import exceptions
from gsaas.db import leases
from gsaas.grants import keyring, redemption
from gsaas.metrics import counted
from tests.api.world import World, only_error

KEY = "first:" + "Zmlyc3Qt" * 6
OTHER_KEY = "second:" + "c2Vjb25k" * 6
HERE, THERE = "192.0.2.10", "192.0.2.66"


@pytest.fixture
def world(tmp_path):
    world = World.build(tmp_path, settings=f"[grants]\nkey = {KEY}\ngate_port = 8307\n")
    yield world
    world.database.close()


def alloc(world, caller="member", **consumer):
    body = {"lease": {"cgpus": {"count": 1}, "server": None, "consumer": consumer}}
    response = world.call(caller, "POST", "/v1/leases", body)
    assert response.status_code == 201, response.json
    return response.json


def redeem(world, key, address=HERE, caller="service", **context):
    body = {"grant": {"key": key, "address": address, **context}}
    return world.call(caller, "POST", "/v1/grants/redeem", body)


def lease_of(world, answer):
    with world.database.read() as session:
        return leases.get(session.connection(), answer["lease"]["id"])


def events(world, answer):
    with world.database.read() as session:
        told = leases.events(session.connection(), answer["lease"]["id"])
        return [(event.event, event.detail) for event in told if "grant" in event.event]


def shown(outcome):
    return counted.GRANTS.labels(outcome)._value.get()


def test_a_lease_with_real_addresses_has_a_grant_and_a_gate_to_show_it_at(world):
    answer = alloc(world)

    (device,) = answer["lease"]["devices"]
    host = device["real_address"].split(":")[0]
    environment = answer["environment"]
    assert list(environment)[:3] == ["GSAAS_LEASE", "GSAAS_GRANT", "GSAAS_GATE"]
    assert environment["GSAAS_GATE"] == f"{host}:8307"


def test_a_redeemed_grant_admits_its_address_and_the_response_says_to_what(world):
    before = shown("redeemed")
    answer = alloc(world)
    woken = len(world.engine.woken)

    response = redeem(world, answer["environment"]["GSAAS_GRANT"])

    assert response.status_code == 200
    (device,) = answer["lease"]["devices"]
    assert response.json["grant"] == {
        "lease_id": answer["lease"]["id"],
        "project_id": "blue",
        "address": HERE,
        "devices": [{"index": 0, "memory_mb": 8192, "real_address": device["real_address"]}],
    }
    assert lease_of(world, answer).admitted_address == HERE
    assert events(world, answer) == [("redeem-grant", f"from {HERE}")]
    assert shown("redeemed") == before + 1
    assert len(world.engine.woken) == woken + 1


def test_once_redeemed_the_environment_has_none_any_more(world):
    answer = alloc(world)
    redeem(world, answer["environment"]["GSAAS_GRANT"])

    path = f"/v1/leases/{answer['lease']['id']}/environment"
    again = world.call("member", "GET", path).json["environment"]

    assert "GSAAS_GRANT" not in again
    assert "GSAAS_GATE" not in again


@pytest.mark.parametrize(
    ("address", "code"), [(HERE, "gsaas.grant.replayed"), (THERE, "gsaas.grant.stolen")]
)
def test_a_replayed_grant_is_refused_and_recorded_from_any_address(world, address, code):
    answer = alloc(world)
    key = answer["environment"]["GSAAS_GRANT"]
    redeem(world, key)

    error = only_error(redeem(world, key, address))

    assert (error["status"], error["code"]) == (403, code)
    assert lease_of(world, answer).admitted_address == HERE
    (_, refused) = events(world, answer)
    assert refused[0] == "refuse-grant"
    assert refused[1].startswith(f"from {address}: ")


def test_a_thousand_replays_are_one_event(world):
    answer = alloc(world)
    key = answer["environment"]["GSAAS_GRANT"]
    redeem(world, key)
    before = shown("replayed")

    for _ in range(5):
        redeem(world, key)

    assert len(events(world, answer)) == 2
    assert shown("replayed") == before + 5


def test_two_grants_of_one_lease_are_good_for_one_redemption_together(world):
    answer = alloc(world)
    path = f"/v1/leases/{answer['lease']['id']}/environment"
    other = world.call("member", "GET", path).json["environment"]["GSAAS_GRANT"]
    redeem(world, answer["environment"]["GSAAS_GRANT"])

    assert only_error(redeem(world, other))["code"] == "gsaas.grant.replayed"


def test_a_forged_one_is_refused_and_counted(world, caplog):
    answer = alloc(world)
    stranger = keyring.Keyring([OTHER_KEY.replace("second", "first")])
    forged = stranger.sign(answer["lease"]["id"], "blue", timeutils.utcnow())
    before = shown("forged")

    for key in (forged, forged[:-4], "nonsense", answer["environment"]["GSAAS_GRANT"] + "x" * 9):
        assert only_error(redeem(world, key))["code"] == "gsaas.grant.forged"

    assert shown("forged") == before + 4
    assert HERE in caplog.text
    assert forged not in caplog.text
    assert lease_of(world, answer).admitted_address is None


@pytest.fixture
def clock():
    """The service's clock, which tests advance."""
    timeutils.set_time_override()
    yield timeutils
    timeutils.clear_time_override()


def test_an_expired_one_is_refused_and_a_new_one_is_a_request_away(world, clock):
    answer = alloc(world)
    clock.advance_time_seconds(world.conf.grants.lifetime + 1)

    error = only_error(redeem(world, answer["environment"]["GSAAS_GRANT"]))
    assert error["code"] == "gsaas.grant.expired"
    assert events(world, answer)[0][0] == "refuse-grant"

    path = f"/v1/leases/{answer['lease']['id']}/environment"
    again = world.call("member", "GET", path).json["environment"]
    assert redeem(world, again["GSAAS_GRANT"]).status_code == 200


def test_another_project_cannot_redeem_it_in_its_own_name(world):
    answer, theirs = alloc(world), alloc(world, "stranger")
    key = answer["environment"]["GSAAS_GRANT"]

    for context in (
        {"project_id": "red"},
        {"lease_id": theirs["lease"]["id"]},
        {"lease_id": answer["lease"]["id"], "project_id": "red"},
    ):
        error = only_error(redeem(world, key, THERE, **context))
        assert error["code"] == "gsaas.grant.stolen"

    assert lease_of(world, answer).admitted_address is None
    assert lease_of(world, theirs).admitted_address is None
    assert events(world, answer)[0][1].startswith(f"from {THERE}: ")
    assert redeem(world, key, lease_id=answer["lease"]["id"], project_id="blue").status_code == 200


def test_only_the_address_that_the_consumer_named_can_redeem(world):
    answer = alloc(world, address=HERE)
    key = answer["environment"]["GSAAS_GRANT"]

    assert only_error(redeem(world, key, THERE))["code"] == "gsaas.grant.stolen"
    assert redeem(world, key, HERE).status_code == 200


def test_the_grant_of_a_lease_that_has_ended_is_refused(world):
    answer = alloc(world)
    world.call("member", "DELETE", f"/v1/leases/{answer['lease']['id']}")

    error = only_error(redeem(world, answer["environment"]["GSAAS_GRANT"]))

    assert error["code"] == "gsaas.grant.over"


def test_a_lease_whose_grant_was_redeemed_is_released_by_the_engine(world):
    """The fences must remove the address before other leases can claim the GPUs."""
    answer = alloc(world)
    redeem(world, answer["environment"]["GSAAS_GRANT"])

    response = world.call("member", "DELETE", f"/v1/leases/{answer['lease']['id']}")

    assert response.json["lease"]["status"] == "RELEASING"
    assert world.engine.woken[-1] == (answer["lease"]["id"], "blue")


def test_leases_with_masked_addresses_need_none(world):
    body = {"lease": {"cgpus": {"count": 1}, "server": None, "consumer": {"host": "compute1"}}}
    lease = world.call("member", "POST", "/v1/leases", body).json["lease"]

    environment = world.call("member", "GET", f"/v1/leases/{lease['id']}/environment").json

    assert "GSAAS_GRANT" not in environment["environment"]


def test_after_a_change_of_keys_grants_of_the_old_one_are_good(tmp_path):
    world = World.build(tmp_path, settings=f"[grants]\nkey = {OTHER_KEY}\nkey = {KEY}\n")
    answer = alloc(world)
    by_old = keyring.Keyring([KEY]).sign(answer["lease"]["id"], "blue", timeutils.utcnow())

    assert redeem(world, by_old).status_code == 200
    world.database.close()


@pytest.mark.parametrize(
    "grant",
    [
        {"key": "x"},
        {"key": "", "address": HERE},
        {"key": "x", "address": "1.2.3.256"},
        {"key": "x", "address": "::1"},
        {"key": "x" * 5000, "address": HERE},
        {"key": "x", "address": HERE, "host": "gpu1"},
    ],
)
def test_what_is_no_showing_of_a_grant_is_a_bad_request(world, grant):
    assert world.call("service", "POST", "/v1/grants/redeem", {"grant": grant}).status_code == 400


def test_of_many_concurrent_redemptions_one_succeeds(world):
    key = alloc(world)["environment"]["GSAAS_GRANT"]
    ring, outcomes, ready = keyring.from_conf(world.conf), [], threading.Barrier(8)

    def show(number):
        ready.wait()
        try:
            redemption.redeem(
                world.database, ring, redemption.PresentedGrant(key, f"192.0.2.{number}")
            )
            outcomes.append("redeemed")
        except exceptions.GrantRefused as refusal:
            outcomes.append(refusal.outcome)

    threads = [threading.Thread(target=show, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(outcomes) == ["redeemed", *["stolen"] * 7]


def test_its_time_is_the_services_not_the_callers(world):
    ring = keyring.from_conf(world.conf)
    answer = alloc(world)
    later = timeutils.utcnow() + datetime.timedelta(days=1)

    with pytest.raises(keyring.ExpiredGrant):
        ring.verify(answer["environment"]["GSAAS_GRANT"], later)
