# SPDX-License-Identifier: Apache-2.0
"""What the account of a host may do on RabbitMQ. Pure.

The names are those that oslo.messaging gives to exchanges and queues. A server of a topic reads three queues: `TOPIC`,
`TOPIC.SERVER` and `TOPIC_fanout_UUID`; a client reads its own queue of answers, which `gsaas.rpc` names after the host.
All declare what they use, so they may configure it.

1. An account reads the queues of its own host only, and binds them to its own routing keys only: it sees neither what
   other hosts get, nor what the API sends the engine, such as users' tokens.
2. It publishes to the engine, and answers through the default exchange, which reaches every queue. RabbitMQ has no
   permission between these two, so signatures say who sent a message (`gsaas.rpc.signatures`).
3. It may configure the exchange, as oslo.messaging has no way to use one without declaring it. So it can replace the
   exchange by one without topic permissions: doc/security.md says what follows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gsaas import rpc

ROLES = {"gpu": rpc.MONITOR, "compute": rpc.RODVR}
"""The role of a host -> the topic of its agent."""
_UUID = "[0-9a-f]{32}"


@dataclass(frozen=True)
class Permissions:
    """Regular expressions of the names that an account may configure, write to and read, and of routing keys."""

    configure: str
    write: str
    read: str
    topic_write: str
    topic_read: str

    def commands(self, virtual_host: str, account: str) -> list[list[str]]:
        """Return the commands that give *account* these permissions in *virtual_host*, and no other there."""
        where = ["-p", virtual_host, account]
        return [
            ["rabbitmqctl", "set_permissions", *where, self.configure, self.write, self.read],
            [
                *("rabbitmqctl", "set_topic_permissions", *where, rpc.EXCHANGE),
                *(self.topic_write, self.topic_read),
            ],
        ]


def of_host(host: str, roles: Sequence[str]) -> Permissions:
    """Return the permissions of the account of *host*; *roles* are names of `ROLES`."""
    name = re.escape(host)
    topics = [ROLES[role] for role in roles]
    answers = f"reply_{name}_{_UUID}"
    queues = [
        queue
        for topic in topics
        for queue in (topic, rf"{topic}\.{name}", f"{topic}_fanout_{_UUID}")
    ] + [answers]
    fanouts = [f"{topic}_fanout" for topic in topics]
    return Permissions(
        configure=_any(rpc.EXCHANGE, *fanouts, *queues),
        write=_any(rpc.EXCHANGE, r"amq\.default", *queues),
        read=_any(rpc.EXCHANGE, *fanouts, *queues),
        topic_write=_any(rpc.ENGINE, rpc.NOBODY),
        topic_read=_any(*(rf"{topic}(\.{name})?" for topic in topics)),
    )


def _any(*names: str) -> str:
    return f"^({'|'.join(names)})$"
