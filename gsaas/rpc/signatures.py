# SPDX-License-Identifier: Apache-2.0
"""Signatures of messages: who sent a message, and to whom. Pure, but for the clock that is passed in.

RabbitMQ lets an account publish to certain exchanges only. But an agent has to answer the engine's calls, and
oslo.messaging publishes answers to the default exchange, from which every queue can be reached. So the broker cannot
say who sent a message; these signatures do.

1. Each agent shares a key with the controllers, which derive it from a secret of theirs (HMAC-SHA256, RFC 2104) and
   from the agent's name, `gpu1@gsaas-monitor`. A host that is broken into can sign in the names of its own agents only:
   with the key of a RODVR endpoint it cannot report GPUs.
2. A signature is for one topic. It covers the method, its arguments, the caller's context and the time.
3. Of a message to an agent, the agent's key proves that a controller sent it: nobody else but the agent has it.
   Controllers believe one another by a key of their own.
4. An answer is a message to whom asked. It is signed for the one question, which a random number names, and has to
   be from whom that was for: the agent of the topic, or a controller.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oslo_serialization import jsonutils

from gsaas.objects import host_names

CONTROLLERS = "@controllers"
"""The sender of controllers' messages: no agent can have this name."""

SIGNATURE = "gsaas_signature"
"""The key of a message's context, and of an answer, under which the signature is sent."""
ANSWER = "gsaas_answer"
"""The key of a signed answer under which its content is sent."""
_NOT_SIGNED = {SIGNATURE, "client_timeout", "traceparent", "tracestate", "baggage"}
"""What oslo.messaging adds to a context after it was signed; the last three with `[oslo_messaging_tracing]`."""
_SENDER = re.compile(f"{CONTROLLERS}|{host_names.PATTERN[1:-1]}@gsaas-(monitor|rodvr)")
_DIGEST = re.compile("[0-9a-f]{64}")


class Forged(Exception):
    """A message is not signed by anyone who may send it; the text says why, for the log."""


@dataclass(frozen=True)
class Message:
    """What a signature covers."""

    audience: str
    """A topic: `gsaas-engine`, `gpu1@gsaas-monitor`; of an answer, who asked."""
    method: str
    arguments: Mapping[str, Any]
    context: Mapping[str, Any]
    """The caller's context, as it is sent or was received; all of it is signed."""

    def digest(self, key: str, sender: str, at: float, nonce: str) -> str:
        """Return the signature of *sender*, at the time *at* (seconds since 1970), with *key*; *nonce* is random."""
        context = {name: self.context[name] for name in self.context if name not in _NOT_SIGNED}
        signed = [self.audience, sender, at, nonce, self.method, dict(self.arguments), context]
        # Keys are sorted as they arrive: JSON makes strings of numbers, which sort differently.
        arrives = json.loads(jsonutils.dumps(signed))
        text = json.dumps(arrives, sort_keys=True, separators=(",", ":"))
        return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def key_of(secret: str, name: str) -> str:
    """Return the key that controllers with *secret* share with the agent *name*, or among each other."""
    digest = hmac.new(secret.encode(), f"gsaas bus key of {name}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest.digest()).decode().rstrip("=")


def content_of(received: Any) -> Any:
    """Return the content of an answer, whether it is signed or not; it is not verified."""
    return received[ANSWER] if _is_signed(received) else received


class Identity:
    """Who a process is on the bus: it signs in this name, and says who has signed a message.

    *keys* returns the keys that it shares with a sender or receiver, the one to sign with first; *name* is that of an
    agent, `gsaas.rpc.agent_name`, or `CONTROLLERS`.
    """

    def __init__(
        self,
        name: str,
        keys: Callable[[str], Sequence[str]],
        *,
        max_age: float,
        enforce: bool,
        clock: Callable[[], float],
    ) -> None:
        self.name = name
        self.enforce = enforce
        self._keys = keys
        self._max_age = max_age
        self._clock = clock

    @classmethod
    def of_controllers(cls, secrets: Sequence[str], **how: Any) -> Identity:
        """Return the identity of a process on a controller, which knows the key of every agent."""
        return cls(CONTROLLERS, lambda name: [key_of(secret, name) for secret in secrets], **how)

    @classmethod
    def of_agent(cls, name: str, keys: Sequence[str], **how: Any) -> Identity:
        """Return the identity of an agent, which has only its own keys."""
        return cls(name, lambda _: keys, **how)

    def sign(self, message: Message) -> dict[str, Any]:
        """Return the signature to send with *message*."""
        at, nonce = self._clock(), uuid.uuid4().hex
        key = self._keys(_owner(message.audience) if self.name == CONTROLLERS else self.name)[0]
        digest = message.digest(key, self.name, at, nonce)
        return {"sender": self.name, "at": at, "nonce": nonce, "digest": digest}

    def verify(self, message: Message, signature: object) -> str:
        """Return who signed *message*; raise `Forged`. Its audience is that of the receiver."""
        try:
            sender, at = str(signature["sender"]), float(signature["at"])  # type: ignore[index]
            nonce, digest = str(signature["nonce"]), str(signature["digest"])  # type: ignore[index]
        except (KeyError, TypeError, ValueError, OverflowError):
            raise Forged("it is not signed") from None
        # Before anything is computed from them, or logged: anybody may have written them.
        if not (_SENDER.fullmatch(sender) and _DIGEST.fullmatch(digest)):
            raise Forged("it is not signed")
        # A controller has no agent's key, although an agent may run on its host: agents have that.
        name = sender if self.name == CONTROLLERS else self.name
        if self.name != CONTROLLERS and sender != CONTROLLERS:
            raise Forged(f"{sender} is not a controller")
        try:
            digests = [message.digest(key, sender, at, nonce) for key in self._keys(name)]
        except UnicodeEncodeError:  # JSON may have half of a surrogate pair; no signed message has
            raise Forged("it is not signed") from None
        if not any(hmac.compare_digest(expected, digest) for expected in digests):
            raise Forged(f"the signature is not that of {sender}, for {message.audience}")
        age = self._clock() - at
        if not abs(age) <= self._max_age:  # nor is a time believed that is not a number
            raise Forged(
                f"{sender} signed it {age:.0f} s ago: it is old, or the clocks of the hosts differ"
            )
        return sender

    def sign_answer(self, answer: Any, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return *answer* as it is to be sent to the sender of *question*, a signature that was verified."""
        signature = self.sign(_answer(question, str(question["sender"]), answer))
        return {ANSWER: answer, SIGNATURE: signature}

    def open_answer(self, received: Any, question: Mapping[str, Any], topic: str) -> Any:
        """Return the content of the answer to the message with the signature *question*, which was sent to *topic*.

        Raises `Forged` if it is not signed by the agent of the topic, or a controller, as an answer to this question.
        """
        if not _is_signed(received):
            raise Forged("it is not signed")
        answer = received[ANSWER]
        sender = self.verify(_answer(question, self.name, answer), received[SIGNATURE])
        if sender != _owner(topic):
            raise Forged(f"{sender} answered in the place of {_owner(topic)}")
        return answer


def _answer(question: Mapping[str, Any], asked_by: str, answer: Any) -> Message:
    return Message(asked_by, f"answer {question['nonce']}", {"answer": answer}, {})


def _is_signed(received: Any) -> bool:
    return isinstance(received, dict) and received.keys() == {ANSWER, SIGNATURE}


def _owner(topic: str) -> str:
    """Return who serves *topic*, and so shares a key with those who send there: an agent, or the controllers."""
    return topic if "@" in topic else CONTROLLERS
