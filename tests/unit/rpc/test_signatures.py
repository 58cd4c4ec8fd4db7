# SPDX-License-Identifier: Apache-2.0
"""Signatures of messages, without a message bus."""

from __future__ import annotations

import dataclasses
import json

import pytest

from gsaas.context import RequestContext
from gsaas.rpc.signatures import CONTROLLERS, Forged, Identity, Message, key_of

HOW = {"max_age": 300.0, "enforce": True}
REPORT = Message("gsaas-engine", "monitor_report", {"host": "gpu1", "report": {"a": [1, 2.5]}}, {})
TO_GPU1 = Message("gsaas-monitor.gpu1", "apply", {"wanted": {}}, {"user_id": "u", "roles": ["r"]})
ENGINE = ("gsaas-engine", "gsaas-engine.ctl1")


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def controllers(clock) -> Identity:
    return Identity.of_controllers(["secret"], clock=clock, **HOW)


def host(name: str, clock: Clock, secret: str = "secret") -> Identity:  # noqa: S107
    return Identity.of_host(name, [key_of(secret, name)], clock=clock, **HOW)


def sent(value):
    """What of *value* arrives over the bus."""
    return json.loads(json.dumps(value))


def test_a_host_is_recognised_by_its_signature(controllers, clock):
    signature = host("gpu1", clock).sign(REPORT)
    assert controllers.verify(REPORT, sent(signature), ENGINE) == "gpu1"


def test_a_host_recognises_controllers(controllers, clock):
    signature = controllers.sign(TO_GPU1)
    found = host("gpu1", clock).verify(TO_GPU1, sent(signature), ("gsaas-monitor.gpu1",))
    assert found == CONTROLLERS


def test_controllers_recognise_one_another(controllers):
    message = Message("gsaas-engine", "lease_changed", {"lease_id": "1"}, {"auth_token": "t"})
    assert controllers.verify(message, controllers.sign(message), ENGINE) == CONTROLLERS


def test_a_host_cannot_sign_in_the_name_of_another_nor_of_the_controllers(controllers, clock):
    evil = host("evil", clock)
    for name in ("gpu1", CONTROLLERS):
        evil.name = name
        with pytest.raises(Forged, match="not that of"):
            controllers.verify(REPORT, evil.sign(REPORT), ENGINE)


def test_an_agent_cannot_sign_as_the_controller_on_its_own_host(controllers, clock):
    agent = host("ctl1", clock)
    agent.name = CONTROLLERS
    message = dataclasses.replace(REPORT, audience="gsaas-engine.ctl1")
    with pytest.raises(Forged, match="not that of"):
        controllers.verify(message, agent.sign(message), ENGINE)


def test_a_host_cannot_command_another(clock):
    evil = host("evil", clock)
    evil.name = CONTROLLERS
    with pytest.raises(Forged):
        host("gpu1", clock).verify(TO_GPU1, evil.sign(TO_GPU1), ("gsaas-monitor.gpu1",))
    named = host("evil", clock)
    with pytest.raises(Forged, match="evil is no controller"):
        host("gpu1", clock).verify(TO_GPU1, named.sign(TO_GPU1), ("gsaas-monitor.gpu1",))


@pytest.mark.parametrize(
    "change",
    [
        {"method": "remove"},
        {"arguments": {"wanted": {"serial": 1}}},
        {"context": {"user_id": "u", "roles": ["admin"]}},
        {"context": {"user_id": "u", "roles": ["r"], "auth_token": "t"}},
    ],
)
def test_nothing_of_a_signed_message_can_be_changed(controllers, clock, change):
    signature = controllers.sign(TO_GPU1)
    with pytest.raises(Forged):
        host("gpu1", clock).verify(
            dataclasses.replace(TO_GPU1, **change), signature, ("gsaas-monitor.gpu1",)
        )


CONTEXT = RequestContext(user_id="u", project_id="p", roles=["r"], auth_token="t").to_dict()


@pytest.mark.parametrize("name", [*CONTEXT, "user_name", "service_roles"])
def test_every_field_of_the_callers_context_is_signed(controllers, name):
    message = Message("gsaas-engine", "lease_changed", {}, CONTEXT)
    changed = dataclasses.replace(message, context={**CONTEXT, name: "changed"})
    signature = controllers.sign(message)
    assert controllers.verify(message, signature, ENGINE) == CONTROLLERS
    with pytest.raises(Forged):
        controllers.verify(changed, signature, ENGINE)


def test_arguments_with_numbers_for_keys_arrive_as_they_were_signed(controllers, clock):
    message = Message("gsaas-engine", "monitor_report", {"ports": {9: "a", 10: "b"}}, {})
    signature = host("gpu1", clock).sign(message)
    arrived = dataclasses.replace(message, arguments=sent(message.arguments))
    assert controllers.verify(arrived, sent(signature), ENGINE) == "gpu1"


@pytest.mark.parametrize("at", [float("nan"), float("inf"), float("-inf")])
def test_a_signature_that_would_never_be_old_is_not_believed(controllers, clock, at):
    clock.now = at
    signature = sent(host("gpu1", clock).sign(REPORT))
    clock.now = Clock.now
    with pytest.raises(Forged, match="clocks"):
        controllers.verify(REPORT, signature, ENGINE)


def test_a_message_for_one_receiver_is_not_believed_by_another(controllers, clock):
    signature = controllers.sign(TO_GPU1)
    for name, audience in (("gpu2", "gsaas-monitor.gpu2"), ("gpu1", "gsaas-rodvr.gpu1")):
        with pytest.raises(Forged, match=r"sent to gsaas-monitor\.gpu1"):
            host(name, clock).verify(TO_GPU1, signature, (audience,))
    renamed = {**signature, "audience": "gsaas-monitor.gpu2"}
    with pytest.raises(Forged):
        host("gpu2", clock).verify(TO_GPU1, renamed, ("gsaas-monitor.gpu2",))


@pytest.mark.parametrize("later", [301.0, -301.0])
def test_an_old_message_is_not_believed(controllers, clock, later):
    signature = host("gpu1", clock).sign(REPORT)
    clock.now += later
    with pytest.raises(Forged, match="clocks"):
        controllers.verify(REPORT, signature, ENGINE)


@pytest.mark.parametrize("signature", [None, {}, "x", {"sender": "gpu1", "at": "now"}, [1]])
def test_a_message_without_a_signature_is_not_believed(controllers, signature):
    with pytest.raises(Forged, match="not signed"):
        controllers.verify(REPORT, signature, ENGINE)


def test_secrets_can_be_replaced_one_after_the_other(clock):
    both = Identity.of_controllers(["new", "old"], clock=clock, **HOW)
    for secret in ("new", "old"):
        signature = host("gpu1", clock, secret).sign(REPORT)
        assert both.verify(REPORT, signature, ENGINE) == "gpu1"
    assert host("gpu1", clock, "new").verify(TO_GPU1, both.sign(TO_GPU1), ("gsaas-monitor.gpu1",))
