# SPDX-License-Identifier: Apache-2.0
"""Signatures of messages, without a message bus."""

from __future__ import annotations

import dataclasses
import json

import pytest

from gsaas import rpc
from gsaas.context import RequestContext
from gsaas.objects import host_names
from gsaas.rpc.signatures import (
    ANSWER,
    CONTROLLERS,
    SIGNATURE,
    Forged,
    Identity,
    Message,
    content_of,
    key_of,
)

HOW = {"max_age": 300.0, "enforce": True}
REPORT = Message("gsaas-engine", "monitor_report", {"host": "gpu1", "report": {"a": [1, 2.5]}}, {})
GPU1 = "gpu1@gsaas-monitor"
TO_GPU1 = Message(GPU1, "apply", {"wanted": {}}, {"user_id": "u", "roles": ["r"]})


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


def agent(name: str, clock: Clock, secret: str = "secret") -> Identity:  # noqa: S107
    return Identity.of_agent(name, [key_of(secret, name)], clock=clock, **HOW)


def sent(value):
    """What of *value* arrives over the bus."""
    return json.loads(json.dumps(value))


def test_an_agent_is_recognised_by_its_signature(controllers, clock):
    signature = agent(GPU1, clock).sign(REPORT)
    assert controllers.verify(REPORT, sent(signature)) == GPU1


def test_an_agent_recognises_controllers(controllers, clock):
    signature = controllers.sign(TO_GPU1)
    assert agent(GPU1, clock).verify(TO_GPU1, sent(signature)) == CONTROLLERS


def test_controllers_recognise_one_another(controllers):
    message = Message("gsaas-engine", "lease_changed", {"lease_id": "1"}, {"auth_token": "t"})
    assert controllers.verify(message, controllers.sign(message)) == CONTROLLERS


@pytest.mark.parametrize("name", [GPU1, CONTROLLERS, "evil@gsaas-monitor"])
def test_an_agent_cannot_sign_in_another_name(controllers, clock, name):
    """Nor in that of the monitor on its own host, whose key is another."""
    evil = agent("evil@gsaas-rodvr", clock)
    evil.name = name
    with pytest.raises(Forged, match="not that of"):
        controllers.verify(REPORT, evil.sign(REPORT))


def test_a_host_cannot_command_another(clock):
    evil = agent("evil@gsaas-monitor", clock)
    with pytest.raises(Forged, match="evil@gsaas-monitor is not a controller"):
        agent(GPU1, clock).verify(TO_GPU1, evil.sign(TO_GPU1))
    evil.name = CONTROLLERS
    with pytest.raises(Forged, match="not that of"):
        agent(GPU1, clock).verify(TO_GPU1, evil.sign(TO_GPU1))


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
        agent(GPU1, clock).verify(dataclasses.replace(TO_GPU1, **change), signature)


CONTEXT = RequestContext(user_id="u", project_id="p", roles=["r"], auth_token="t").to_dict()


@pytest.mark.parametrize("name", [*CONTEXT, "user_name", "service_roles"])
def test_every_field_of_the_callers_context_is_signed(controllers, name):
    message = Message("gsaas-engine", "lease_changed", {}, CONTEXT)
    changed = dataclasses.replace(message, context={**CONTEXT, name: "changed"})
    signature = controllers.sign(message)
    assert controllers.verify(message, signature) == CONTROLLERS
    with pytest.raises(Forged):
        controllers.verify(changed, signature)


def test_arguments_with_numbers_for_keys_arrive_as_they_were_signed(controllers, clock):
    message = Message("gsaas-engine", "monitor_report", {"ports": {9: "a", 10: "b"}}, {})
    signature = agent(GPU1, clock).sign(message)
    arrived = dataclasses.replace(message, arguments=sent(message.arguments))
    assert controllers.verify(arrived, sent(signature)) == GPU1


@pytest.mark.parametrize("at", [float("nan"), float("inf"), float("-inf")])
def test_a_signature_that_would_never_be_old_is_not_believed(controllers, clock, at):
    clock.now = at
    signature = sent(agent(GPU1, clock).sign(REPORT))
    clock.now = Clock.now
    with pytest.raises(Forged, match="clocks"):
        controllers.verify(REPORT, signature)


@pytest.mark.parametrize("other", ["gpu2@gsaas-monitor", "gpu1@gsaas-rodvr"])
def test_a_message_for_one_receiver_is_not_believed_by_another(controllers, clock, other):
    signature = controllers.sign(TO_GPU1)
    with pytest.raises(Forged, match="not that of @controllers, for " + other):
        agent(other, clock).verify(dataclasses.replace(TO_GPU1, audience=other), signature)


@pytest.mark.parametrize("later", [301.0, -301.0])
def test_an_old_message_is_not_believed(controllers, clock, later):
    signature = agent(GPU1, clock).sign(REPORT)
    clock.now += later
    with pytest.raises(Forged, match="clocks"):
        controllers.verify(REPORT, signature)


@pytest.mark.parametrize("signature", [None, {}, "x", {"sender": "gpu1", "at": "now"}, [1]])
def test_a_message_without_a_signature_is_not_believed(controllers, signature):
    with pytest.raises(Forged, match="not signed"):
        controllers.verify(REPORT, signature)


@pytest.mark.parametrize(
    "wrong",
    [
        {"sender": "gpu1\nERROR all is lost@gsaas-monitor"},
        {"sender": f"{'x' * 201}@gsaas-monitor"},
        {"sender": "gpu1@gsaas-engine"},
        {"sender": "\ud800@gsaas-monitor"},
        {"sender": "@controllers\n"},
        {"at": 10**400},
        {"digest": "\N{GREEK SMALL LETTER ALPHA}" * 64},
        {"digest": "x" * 1_000_000},
    ],
    ids=["line", "long", "engine", "surrogate", "newline", "late", "letters", "large"],
)
@pytest.mark.parametrize("receiver", ["controllers", GPU1])
def test_a_signature_of_any_other_form_is_none_and_nothing_of_it_is_logged(
    controllers, clock, wrong, receiver
):
    signature = {**agent(GPU1, clock).sign(REPORT), **wrong}
    identity = controllers if receiver == "controllers" else agent(GPU1, clock)
    with pytest.raises(Forged) as refused:
        identity.verify(REPORT, signature)
    assert str(refused.value) == "it is not signed"


@pytest.mark.parametrize("wrong", [{"nonce": "\ud800"}, {"nonce": "x" * 100_000}])
def test_a_random_number_of_any_form_is_only_a_wrong_signature(controllers, clock, wrong):
    signature = {**agent(GPU1, clock).sign(REPORT), **wrong}
    with pytest.raises(Forged, match=r"^(the signature is not that of gpu1|it is not signed)"):
        controllers.verify(REPORT, signature)


def test_half_a_surrogate_pair_in_a_message_is_only_a_wrong_signature(controllers, clock):
    signature = agent(GPU1, clock).sign(REPORT)
    with pytest.raises(Forged):
        controllers.verify(dataclasses.replace(REPORT, method="\ud800"), signature)


@pytest.mark.parametrize("host", ["Gpu_1.example.org", "a", "7", "x" * host_names.LONGEST])
@pytest.mark.parametrize("kind", [rpc.MONITOR, rpc.RODVR])
def test_every_name_that_a_host_may_have_can_sign(controllers, clock, host, kind):
    name = rpc.agent_name(kind, host)
    assert controllers.verify(REPORT, agent(name, clock).sign(REPORT)) == name


def test_secrets_can_be_replaced_one_after_the_other(clock):
    both = Identity.of_controllers(["new", "old"], clock=clock, **HOW)
    for secret in ("new", "old"):
        signature = agent(GPU1, clock, secret).sign(REPORT)
        assert both.verify(REPORT, signature) == GPU1
    assert agent(GPU1, clock, "new").verify(TO_GPU1, both.sign(TO_GPU1))


class TestAnswers:
    def test_controllers_believe_the_answer_of_the_agent_that_they_asked(self, controllers, clock):
        question = controllers.sign(TO_GPU1)
        answer = sent(agent(GPU1, clock).sign_answer({"serial": 7}, sent(question)))
        assert controllers.open_answer(answer, question, GPU1) == {"serial": 7}

    def test_an_agent_believes_the_answer_of_a_controller(self, controllers, clock):
        gpu1 = agent(GPU1, clock)
        question = gpu1.sign(REPORT)
        answer = sent(controllers.sign_answer([1, None], sent(question)))
        assert gpu1.open_answer(answer, question, "gsaas-engine") == [1, None]

    def test_one_host_cannot_answer_for_another(self, controllers, clock):
        question = controllers.sign(TO_GPU1)
        evil = agent("evil@gsaas-monitor", clock)
        with pytest.raises(Forged, match="evil@gsaas-monitor answered in the place of gpu1@"):
            controllers.open_answer(evil.sign_answer({}, question), question, GPU1)
        evil.name = GPU1
        with pytest.raises(Forged, match="not that of gpu1@"):
            controllers.open_answer(evil.sign_answer({}, question), question, GPU1)

    def test_a_host_cannot_answer_for_the_engine(self, clock):
        gpu1, evil = agent(GPU1, clock), agent("evil@gsaas-monitor", clock)
        question = gpu1.sign(REPORT)
        for name in (evil.name, CONTROLLERS):
            evil.name = name
            with pytest.raises(Forged):
                gpu1.open_answer(evil.sign_answer({}, question), question, "gsaas-engine")

    def test_an_answer_is_believed_for_one_question_only(self, controllers, clock):
        gpu1 = agent(GPU1, clock)
        first, second = gpu1.sign(REPORT), gpu1.sign(REPORT)
        with pytest.raises(Forged):
            gpu1.open_answer(controllers.sign_answer({}, first), second, "gsaas-engine")

    def test_nothing_of_an_answer_can_be_changed(self, controllers, clock):
        gpu1 = agent(GPU1, clock)
        question = gpu1.sign(REPORT)
        answer = controllers.sign_answer({"serial": 1}, question)
        with pytest.raises(Forged):
            gpu1.open_answer({**answer, ANSWER: {"serial": 2}}, question, "gsaas-engine")

    @pytest.mark.parametrize("answer", [None, {}, [1], {ANSWER: 1}, {ANSWER: 1, SIGNATURE: None}])
    def test_an_unsigned_answer_is_not_believed_and_can_be_read(self, controllers, answer):
        question = controllers.sign(TO_GPU1)
        with pytest.raises(Forged, match="not signed"):
            controllers.open_answer(answer, question, GPU1)
        signed = controllers.sign_answer(answer, question)
        assert content_of(signed) == answer

    def test_a_question_is_no_answer_and_an_answer_no_question(self, controllers, clock):
        """The engine signs what it says to a host with the key of that host, which signs its reports, too."""
        gpu1 = agent(GPU1, clock)
        question = gpu1.sign(REPORT)
        answer = controllers.sign_answer({}, question)
        with pytest.raises(Forged):
            gpu1.verify(TO_GPU1, answer[SIGNATURE])
        back = {ANSWER: {}, SIGNATURE: question}
        with pytest.raises(Forged):
            gpu1.open_answer(back, question, "gsaas-engine")
