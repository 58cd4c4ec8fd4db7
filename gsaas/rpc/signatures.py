# SPDX-License-Identifier: Apache-2.0
"""Signatures of messages: who sent a message, and to whom. Pure, but for the clock that is passed in.

RabbitMQ lets an account publish to certain exchanges only. But an agent has to answer the engine's calls, and
oslo.messaging publishes answers to the default exchange, from which every queue can be reached. So the broker cannot
say who sent a message; these signatures do.

1. Each host shares a key with the controllers, which derive it from a secret of theirs (HMAC-SHA256, RFC 2104). A host
   that is broken into can sign in its own name only.
2. A signature is for one receiver, or one topic. It covers the method, its arguments, the caller's context and the
   time.
3. Of a message to a host's agent, the host's key proves that a controller sent it: nobody else but the host has it.
   Controllers believe one another by a key of their own, and so address one another by topic only.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oslo_serialization import jsonutils

CONTROLLERS = "@controllers"
"""The sender of controllers' messages: no host can have this name."""

SIGNATURE = "gsaas_signature"
"""The key of a message's context under which its signature is sent."""
_NOT_SIGNED = {SIGNATURE, "client_timeout", "traceparent", "tracestate", "baggage"}
"""What oslo.messaging adds to a context after it was signed; the last three with `[oslo_messaging_tracing]`."""


class Forged(Exception):
    """A message is not signed by a sender that may send it; the text says why, for the log."""


@dataclass(frozen=True)
class Message:
    """What a signature covers."""

    audience: str
    """A topic, or a topic and a server of it: `gsaas-engine`, `gsaas-monitor.gpu1`."""
    method: str
    arguments: Mapping[str, Any]
    context: Mapping[str, Any]
    """The caller's context, as it is sent or was received; all of it is signed."""

    def digest(self, key: str, sender: str, at: float) -> str:
        """Return the signature of *sender*, at the time *at* (seconds since 1970), with *key*."""
        context = {name: self.context[name] for name in self.context if name not in _NOT_SIGNED}
        signed = [self.audience, sender, at, self.method, dict(self.arguments), context]
        # Keys are sorted as they arrive: JSON makes strings of numbers, which sort differently.
        arrives = json.loads(jsonutils.dumps(signed))
        text = json.dumps(arrives, sort_keys=True, separators=(",", ":"))
        return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def key_of(secret: str, name: str) -> str:
    """Return the key that controllers with *secret* share with the host *name*, or among each other."""
    digest = hmac.new(secret.encode(), f"gsaas bus key of {name}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest.digest()).decode().rstrip("=")


class Identity:
    """Who a process is on the bus: it signs in this name, and says who has signed a message.

    *keys* returns the keys that it shares with a sender or receiver, the one to sign with first; *name* is that of a
    host or `CONTROLLERS`.
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
        """Return the identity of a process on a controller, which knows the key of every host."""
        return cls(CONTROLLERS, lambda name: [key_of(secret, name) for secret in secrets], **how)

    @classmethod
    def of_host(cls, name: str, keys: Sequence[str], **how: Any) -> Identity:
        """Return the identity of an agent, which has only the keys of its own host."""
        return cls(name, lambda _: keys, **how)

    def sign(self, message: Message) -> dict[str, Any]:
        """Return the signature to send with *message*."""
        at = self._clock()
        key = self._keys(self._shared_with(message.audience))[0]
        return {
            "sender": self.name,
            "at": at,
            "digest": message.digest(key, self.name, at),
            "audience": message.audience,
        }

    def verify(self, message: Message, signature: object, audiences: Sequence[str]) -> str:
        """Return who signed *message*, which came to *audiences*; raise `Forged`.

        The audience of *message* is not read: the signature names it.
        """
        try:
            sender, at = str(signature["sender"]), float(signature["at"])  # type: ignore[index]
            digest, audience = str(signature["digest"]), str(signature["audience"])  # type: ignore[index]
        except (KeyError, TypeError, ValueError):
            raise Forged("it is not signed") from None
        if audience not in audiences:
            raise Forged(f"it was sent to {audience}")
        # A controller is not named by its host's key, although it may be addressed by the host's name: agents have it.
        name = sender if self.name == CONTROLLERS else self.name
        if self.name != CONTROLLERS and sender != CONTROLLERS:
            raise Forged(f"{sender} is no controller")
        signed = Message(audience, message.method, message.arguments, message.context)
        if not any(
            hmac.compare_digest(signed.digest(key, sender, at), digest) for key in self._keys(name)
        ):
            raise Forged(f"the signature is not that of {sender}")
        age = self._clock() - at
        if not abs(age) <= self._max_age:  # nor is a time believed that is not a number
            raise Forged(
                f"{sender} signed it {age:.0f} s ago: it is old, or the clocks of the hosts differ"
            )
        return sender

    def _shared_with(self, audience: str) -> str:
        """Return with whom the key for *audience* is shared: a host's own name, or `CONTROLLERS`."""
        if self.name != CONTROLLERS:
            return self.name
        _, point, server = audience.partition(".")
        return server if point else CONTROLLERS
